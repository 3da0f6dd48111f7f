package xdstest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// unread is how many responses may wait for the test to expect them.
const unread = 1024

// Protocol is "sotw" or "delta".
type Protocol string

// The protocols.
const (
	SotW  Protocol = "sotw"
	Delta Protocol = "delta"
)

// Stream is one xDS stream, used from the test's goroutine. What fails, fails
// the test at once.
type Stream struct {
	// Protocol and Node are set once by Open.
	Protocol Protocol
	Node     *corev3.Node
	// Only is the type of a separate per-type service; "" for ADS.
	Only mesh.Type

	t      testing.TB
	cancel context.CancelFunc
	send   func(*Request) error
	// arrived is written by the receiver. At the stream's end it sets end, and
	// then closes arrived and done.
	arrived chan *Response
	end     error
	done    chan struct{}
	// reading holds a token unless the stream is paused.
	reading chan struct{}

	first bool
	types map[mesh.Type]*typeState
}

// typeState is what a well-behaved client remembers of one type.
type typeState struct {
	// names and version are for state of the world: every request repeats them.
	names   []string
	version string
	nonce   string
}

// Open opens a stream; nothing is sent until the first request, which then
// carries the node. The stream is closed when the test ends, or by Close.
func Open(t testing.TB, conn grpc.ClientConnInterface, p Protocol, node *corev3.Node) *Stream {
	t.Helper()
	return OpenOnly(t, conn, p, "", node)
}

// OpenOnly is Open on the separate service of one type: cds, eds, lds or rds.
func OpenOnly(t testing.TB, conn grpc.ClientConnInterface, p Protocol, only mesh.Type, node *corev3.Node) *Stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &Stream{
		Protocol: p, Node: node, Only: only, t: t, cancel: cancel,
		arrived: make(chan *Response, unread), done: make(chan struct{}), reading: make(chan struct{}, 1),
		first: true, types: map[mesh.Type]*typeState{},
	}
	receive, err := s.open(ctx, conn)
	if err != nil {
		cancel()
		t.Fatalf("open %s stream: %v", p, err)
	}
	s.reading <- struct{}{}
	go func() {
		s.end = s.receive(ctx, receive)
		close(s.arrived)
		close(s.done)
	}()
	t.Cleanup(func() { cancel(); <-s.done })
	return s
}

// methods are the full names of a type's stream, but for "Stream" or "Delta".
var methods = map[mesh.Type][2]string{
	"":                {"/envoy.service.discovery.v3.AggregatedDiscoveryService/", "AggregatedResources"},
	mesh.TypeCluster:  {"/envoy.service.cluster.v3.ClusterDiscoveryService/", "Clusters"},
	mesh.TypeEndpoint: {"/envoy.service.endpoint.v3.EndpointDiscoveryService/", "Endpoints"},
	mesh.TypeListener: {"/envoy.service.listener.v3.ListenerDiscoveryService/", "Listeners"},
	mesh.TypeRoute:    {"/envoy.service.route.v3.RouteDiscoveryService/", "Routes"},
}

func (s *Stream) open(ctx context.Context, conn grpc.ClientConnInterface) (func() (*Response, error), error) {
	method, ok := methods[s.Only]
	if !ok {
		return nil, fmt.Errorf("no service for type %s is known here", s.Only)
	}
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	switch s.Protocol {
	case SotW:
		stream, err := conn.NewStream(ctx, desc, method[0]+"Stream"+method[1])
		s.send = func(r *Request) error { return stream.SendMsg(r.sotw()) }
		return func() (*Response, error) {
			m := &discoveryv3.DiscoveryResponse{}
			return decode(m, stream.RecvMsg(m), sotwResponse)
		}, err
	case Delta:
		stream, err := conn.NewStream(ctx, desc, method[0]+"Delta"+method[1])
		s.send = func(r *Request) error { return stream.SendMsg(r.delta()) }
		return func() (*Response, error) {
			m := &discoveryv3.DeltaDiscoveryResponse{}
			return decode(m, stream.RecvMsg(m), deltaResponse)
		}, err
	}
	return nil, fmt.Errorf("protocol %q is unknown", s.Protocol)
}

func decode[M any](m M, err error, convert func(M) (*Response, error)) (*Response, error) {
	if err != nil {
		return nil, err
	}
	return convert(m)
}

// receive runs until the stream ends, and gives the reason.
func (s *Stream) receive(ctx context.Context, next func() (*Response, error)) error {
	for {
		select {
		case token := <-s.reading:
			s.reading <- token
		case <-ctx.Done():
			return ctx.Err()
		}
		r, err := next()
		if err != nil {
			return err
		}
		select {
		case s.arrived <- r:
		default:
			s.cancel()
			return fmt.Errorf("more than %d responses are unread", unread)
		}
	}
}

// Send sends r as it is, but for the node, which a stream's first request
// carries unless r has one.
func (s *Stream) Send(r Request) {
	s.t.Helper()
	if s.first && r.Node == nil {
		r.Node = s.Node
	}
	s.first = false
	if err := s.send(&r); err != nil {
		s.t.Fatalf("send %s request for %s: %v", s.Protocol, r.Type.Short(), err)
	}
}

// Subscribe adds names to a type's subscription, as a well-behaved client
// does it: delta sends the names, state of the world repeats the whole list
// with the accepted version and the last nonce. Without names it is the
// legacy wildcard, provided nothing was subscribed before.
func (s *Stream) Subscribe(t mesh.Type, names ...string) {
	s.t.Helper()
	st := s.typeState(t)
	for _, name := range names {
		if !slices.Contains(st.names, name) {
			st.names = append(st.names, name)
		}
	}
	s.Send(Request{Type: t, Subscribe: names, Names: st.names, Version: st.version, Nonce: s.sotwNonce(st)})
}

// Unsubscribe takes names from a type's subscription.
func (s *Stream) Unsubscribe(t mesh.Type, names ...string) {
	s.t.Helper()
	st := s.typeState(t)
	st.names = slices.DeleteFunc(st.names, func(n string) bool { return slices.Contains(names, n) })
	s.Send(Request{Type: t, Unsubscribe: names, Names: st.names, Version: st.version, Nonce: s.sotwNonce(st)})
}

// Ack acknowledges r, whether or not it is the newest of its type.
func (s *Stream) Ack(r *Response) {
	s.t.Helper()
	st := s.typeState(r.Type)
	st.version = r.Version
	s.Send(Request{Type: r.Type, Nonce: r.Nonce, Version: r.Version, Names: st.names})
}

// Nack refuses r with the given message, and reports the version accepted before.
func (s *Stream) Nack(r *Response, message string) {
	s.t.Helper()
	st := s.typeState(r.Type)
	s.Send(Request{Type: r.Type, Nonce: r.Nonce, Error: message, Version: st.version, Names: st.names})
}

// sotwNonce is the nonce for a request that changes the subscription: the last
// one in state of the world; none in delta, where the request is spontaneous.
func (s *Stream) sotwNonce(st *typeState) string {
	if s.Protocol == SotW {
		return st.nonce
	}
	return ""
}

func (s *Stream) typeState(t mesh.Type) *typeState {
	if t == "" {
		t = s.Only
	}
	if s.types[t] == nil {
		s.types[t] = &typeState{}
	}
	return s.types[t]
}

// Ended gives the error that the stream ended with (io.EOF for a clean end),
// or nil while it is open.
func (s *Stream) Ended() error {
	select {
	case <-s.done:
		return s.end
	default:
		return nil
	}
}

// Pause stops reading after at most one more response, so that the server's
// sends block once the stream's flow-control window (64 KB at first) is full.
func (s *Stream) Pause() { <-s.reading }

// Resume reads on after Pause.
func (s *Stream) Resume() { s.reading <- struct{}{} }

// Close cancels the stream from the client's side.
func (s *Stream) Close() { s.cancel() }
