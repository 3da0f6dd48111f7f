package discovery

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

type adsStream = grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]

// fakeServer is a control plane that keeps the xDS protocol, and breaks it where told.
type fakeServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	loadv3.UnimplementedLoadReportingServiceServer

	listener *bufconn.Listener
	grpc     *grpc.Server

	// mu guards what follows.
	mu        sync.Mutex
	resources map[mesh.ResourceName]*discoveryv3.Resource
	streams   []*fakeStream
	lines     []string
	reports   []*loadv3.LoadStatsRequest
	nonce     int
	// withhold drops answers for a resource, deaf drops everything,
	// noResend ignores a subscription of a name that is subscribed.
	withhold map[mesh.ResourceName]bool
	deaf     bool
	noResend bool
	// never are types that it never answers for.
	never map[mesh.Type]bool
	// refuse ends each new stream, endsAfter one that has had so many answers (0: none).
	refuse    bool
	endsAfter int
	// late is how long it takes to begin with a new stream.
	late time.Duration
	// hung is shared by the connections made since the last hang.
	hung *atomic.Bool
	// unreachable lets new connections hang before they are made.
	unreachable bool
	// orders is what the load reporting service says; nil makes it unimplemented.
	orders *loadv3.LoadStatsResponse
}

type fakeStream struct {
	adsStream
	subscribed map[mesh.ResourceName]bool
	// stuck are resources that this stream brings no more; all: it brings nothing.
	stuck    map[mesh.ResourceName]bool
	allStuck bool
	answers  int
	end      chan error
}

func newServer(t *testing.T) *fakeServer {
	t.Helper()
	s := &fakeServer{
		listener:  bufconn.Listen(1 << 20),
		resources: map[mesh.ResourceName]*discoveryv3.Resource{},
		withhold:  map[mesh.ResourceName]bool{},
		never:     map[mesh.Type]bool{},
		hung:      &atomic.Bool{},
	}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *fakeServer) start() {
	s.grpc = grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, s)
	loadv3.RegisterLoadReportingServiceServer(s.grpc, s)
	go func() { _ = s.grpc.Serve(s.listener) }()
}

// stop is a control plane that is gone; restart brings it back, with what it had.
func (s *fakeServer) stop() { s.grpc.Stop() }

func (s *fakeServer) restart() {
	s.listener = bufconn.Listen(1 << 20)
	s.start()
}

// set changes the resources and sends them to every stream that subscribes to them.
func (s *fakeServer) set(t mesh.Type, resources ...*discoveryv3.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range resources {
		name := mesh.ResourceName{Type: t, Name: r.GetName()}
		s.resources[name] = r
		for _, st := range s.streams {
			if st.subscribed[name] {
				s.answer(st, t, []string{r.GetName()})
			}
		}
	}
}

// remove deletes a resource, and tells.
func (s *fakeServer) remove(t mesh.Type, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.resources, mesh.ResourceName{Type: t, Name: name})
	for _, st := range s.streams {
		if st.subscribed[mesh.ResourceName{Type: t, Name: name}] {
			s.answer(st, t, []string{name})
		}
	}
}

// service puts a cluster and its endpoints in place, at a version.
func (s *fakeServer) service(name, version string, hosts ...string) {
	s.set(mesh.TypeCluster, cds(name, version, ""))
	s.set(mesh.TypeEndpoint, eds(name, version, hosts...))
}

func (s *fakeServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// probe sends an empty response on every stream.
func (s *fakeServer) probe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		s.answer(st, mesh.TypeCluster, nil)
	}
}

// cut ends every stream.
func (s *fakeServer) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		st.end <- status.Error(codes.Unavailable, "cut")
	}
}

// log gives what came since the last call.
func (s *fakeServer) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines
	s.lines = nil
	return l
}

// answer sends what there is under the names. mu is held.
func (s *fakeServer) answer(st *fakeStream, t mesh.Type, names []string) {
	if s.deaf || st.allStuck || s.never[t] {
		return
	}
	s.nonce++
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(t), Nonce: fmt.Sprint(s.nonce)}
	for _, n := range names {
		name := mesh.ResourceName{Type: t, Name: n}
		switch res := s.resources[name]; {
		case s.withhold[name], st.stuck[name]:
		case res == nil:
			r.RemovedResources = append(r.RemovedResources, n)
		default:
			r.Resources = append(r.Resources, res)
		}
	}
	if len(names) > 0 && len(r.Resources)+len(r.RemovedResources) == 0 {
		return
	}
	_ = st.Send(r)
	if st.answers++; st.answers == s.endsAfter {
		st.end <- status.Error(codes.Unavailable, "enough")
	}
}

func (s *fakeServer) DeltaAggregatedResources(stream adsStream) error {
	s.mu.Lock()
	late := s.late
	s.mu.Unlock()
	begin := time.NewTimer(late)
	defer begin.Stop()
	select {
	case <-begin.C:
	case <-stream.Context().Done():
		return nil
	}
	st := &fakeStream{adsStream: stream, subscribed: map[mesh.ResourceName]bool{}, stuck: map[mesh.ResourceName]bool{}, end: make(chan error, 1)}
	s.mu.Lock()
	refuse := s.refuse
	s.streams = append(s.streams, st)
	s.lines = append(s.lines, "stream")
	s.mu.Unlock()
	defer s.change(func() { s.streams = slices.DeleteFunc(s.streams, func(o *fakeStream) bool { return o == st }) })
	if refuse {
		return status.Error(codes.Unavailable, "not synced")
	}
	failed := make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			s.receive(st, r)
		}
	}()
	select {
	case err := <-failed:
		return err
	case err := <-st.end:
		return err
	}
}

func (s *fakeServer) receive(st *fakeStream, r *discoveryv3.DeltaDiscoveryRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, describe(r))
	t := mesh.Type(r.GetTypeUrl())
	for _, n := range r.GetResourceNamesUnsubscribe() {
		delete(st.subscribed, mesh.ResourceName{Type: t, Name: n})
	}
	var names []string
	for _, n := range r.GetResourceNamesSubscribe() {
		name := mesh.ResourceName{Type: t, Name: n}
		again := st.subscribed[name]
		st.subscribed[name] = true
		res := s.resources[name]
		held, offered := r.GetInitialResourceVersions()[n]
		if again && s.noResend || offered && res != nil && res.GetVersion() == held {
			continue
		}
		names = append(names, n)
	}
	if len(names) > 0 {
		s.answer(st, t, names)
	}
}

func (s *fakeServer) StreamLoadStats(stream grpc.BidiStreamingServer[loadv3.LoadStatsRequest, loadv3.LoadStatsResponse]) error {
	s.mu.Lock()
	orders := s.orders
	s.mu.Unlock()
	if orders == nil {
		return status.Error(codes.Unimplemented, "no load reports here")
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		s.change(func() { s.reports = append(s.reports, r) })
		if r.GetNode() != nil {
			if err := stream.Send(orders); err != nil {
				return err
			}
		}
	}
}

// hang drops what the present connections carry, both ways, as a network that is cut does.
func (s *fakeServer) hang() {
	s.change(func() {
		s.hung.Store(true)
		s.hung = &atomic.Bool{}
		s.streams = nil // their handlers hear of nothing
	})
}

// dial makes a connection that can hang.
func (s *fakeServer) dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	hung, unreachable := s.hung, s.unreachable
	s.mu.Unlock()
	if unreachable {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn, err := s.listener.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	return cable{conn, hung}, nil
}

// cable is a connection. What is sent on it while it hangs is taken, as a kernel does, and lost.
type cable struct {
	net.Conn
	hung *atomic.Bool
}

func (c cable) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.hung.Load() {
			return n, err
		}
	}
}

func (c cable) Write(b []byte) (int, error) {
	if c.hung.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// dialer connects by address: each is the name of a server.
func dialer(servers map[string]*fakeServer) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			s := servers[address]
			if s == nil {
				return nil, fmt.Errorf("connect %s: refused", address)
			}
			return s.dial(ctx)
		}),
	}
}
