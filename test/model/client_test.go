package model

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/freshmesh/freshmesh/internal/bubble"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/test/model/oracle"
)

// response is a response with what its bytes say beside the content.
type response struct {
	*oracle.Response
	// versions: name → version (delta).
	versions map[string]string
	at       time.Time
}

// client is one client over a real stream. It applies what it accepts before it
// says so, and tells the oracle of everything.
type client struct {
	t    testing.TB
	node *oracle.Node
	// legacy: the wildcard is an empty first request, not "*".
	legacy bool
	// versions are those of contents: type, name and content → version, over all clients.
	versions map[[3]string]string

	mode   mode
	paused bool
	// stalled: nothing passes. away: it does not come back by itself. gone: its stream's end was made by the test.
	stalled, away, gone bool

	link   *bubble.Link
	stream wire
	cancel context.CancelFunc
	// gate holds a token while the client reads.
	gate    chan struct{}
	arrived *arrivals

	// The stream. pending are responses without an answer, oldest first; answered
	// is the nonce answered last, by type; named: a name was sent, by
	// type, in a request that was not void: what is void does not end the wildcard of an empty list.
	pending  []response
	answered map[string]string
	named    map[string]bool
	// introduced: the stream had its first request.
	introduced bool
	// turn alternates what mode nackSome does.
	turn int
}

// arrivals is what a stream's receiver leaves.
type arrivals struct {
	mu  sync.Mutex // guards what follows
	all []response
	// ended is why the stream has; nil before.
	ended error
}

func (a *arrivals) take() (all []response, ended error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all, a.all = a.all, nil
	return all, a.ended
}

// wire is a stream of either protocol.
type wire struct {
	send func(*request) error
	recv func() (response, error)
}

// request is a request of either protocol.
type request struct {
	node                   *corev3.Node
	typ, nonce, err        string
	names                  []string
	subscribe, unsubscribe []string
	initial                map[string]string
}

func (r *request) detail() *statuspb.Status {
	if r.err == "" {
		return nil
	}
	return &statuspb.Status{Code: 3, Message: r.err}
}

func url(short string) string {
	t, _ := mesh.ParseType(short)
	return string(t)
}

func dial(ctx context.Context, link *bubble.Link, delta bool) (wire, error) {
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(link)
	if delta {
		s, err := ads.DeltaAggregatedResources(ctx)
		return wire{
			send: func(r *request) error {
				return s.Send(&discoveryv3.DeltaDiscoveryRequest{
					Node: r.node, TypeUrl: url(r.typ), ResponseNonce: r.nonce, ErrorDetail: r.detail(),
					ResourceNamesSubscribe: r.subscribe, ResourceNamesUnsubscribe: r.unsubscribe, InitialResourceVersions: r.initial,
				})
			},
			recv: func() (response, error) { return decodeDelta(s.Recv()) },
		}, err
	}
	s, err := ads.StreamAggregatedResources(ctx)
	return wire{
		send: func(r *request) error {
			return s.Send(&discoveryv3.DiscoveryRequest{
				Node: r.node, TypeUrl: url(r.typ), ResponseNonce: r.nonce, ErrorDetail: r.detail(), ResourceNames: r.names,
			})
		},
		recv: func() (response, error) { return decodeSotW(s.Recv()) },
	}, err
}

// open begins the next stream and asks for all that is wanted.
func (c *client) open(control *bubble.Control) {
	ctx, cancel := context.WithCancel(context.Background())
	c.link, c.cancel = control.Dial(), cancel
	stream, err := dial(ctx, c.link, c.node.Delta)
	if err != nil {
		c.t.Fatalf("%s: open: %v", c.node.ID, err)
	}
	c.stream, c.arrived, c.gate = stream, &arrivals{}, make(chan struct{}, 1)
	c.gate <- struct{}{}
	c.pending, c.answered, c.named = nil, map[string]string{}, map[string]bool{}
	c.paused, c.stalled, c.gone, c.introduced = false, false, false, false
	arrived, gate := c.arrived, c.gate
	go receive(ctx, stream, arrived, gate)
	c.node.Open(time.Now())
	for _, typ := range oracle.Types {
		if !c.node.Wants(typ).Empty() {
			c.first(typ)
		}
	}
}

func receive(ctx context.Context, stream wire, into *arrivals, gate chan struct{}) {
	for {
		select {
		case token := <-gate:
			gate <- token
		case <-ctx.Done():
		}
		r, err := stream.recv()
		into.mu.Lock()
		if err != nil {
			into.ended = err
			into.mu.Unlock()
			return
		}
		r.at = time.Now()
		into.all = append(into.all, r)
		into.mu.Unlock()
	}
}

// close ends the stream and its connection.
func (c *client) close() {
	if c.link == nil {
		return
	}
	c.cancel()
	if err := c.link.Close(); err != nil {
		c.t.Errorf("%s: close: %v", c.node.ID, err)
	}
	c.link, c.pending = nil, nil
	c.node.Closed()
	synctest.Wait()
}

// deaf tells whether the client hears nothing.
func (c *client) deaf() bool { return c.paused || c.stalled }

// send sends a request; a stream's first one says who the client is. That the
// stream has ended is seen when it is read.
func (c *client) send(r *request) {
	if !c.introduced {
		c.introduced = true
		r.node = &corev3.Node{Id: c.node.ID, Locality: &corev3.Locality{Zone: c.node.Zone}}
	}
	_ = c.stream.send(r)
}

// first sends a type's first request on the stream.
func (c *client) first(typ string) {
	want := c.node.Wants(typ)
	names := want.List()
	if c.legacy && want.Wildcard && len(want.Names) == 0 {
		names = nil
	}
	c.named[typ] = len(names) > 0
	if !c.node.Delta {
		c.send(&request{typ: typ, names: names})
		c.node.Rename(typ, want, "", time.Now())
		return
	}
	offered, initial := map[string]string{}, map[string]string{}
	for name, content := range c.node.Held(typ) {
		offered[name], initial[name] = content, c.versions[[3]string{typ, name, content}]
	}
	c.send(&request{typ: typ, subscribe: names, initial: initial})
	c.node.Subscribe(typ, names, nil, offered, time.Now())
}

// change adds names to the subscription and takes others from it; "*" is the wildcard.
func (c *client) change(typ string, add, drop []string) {
	_, asked := c.named[typ]
	want := c.node.Wants(typ)
	for _, name := range drop {
		want.Wildcard = want.Wildcard && name != "*"
		delete(want.Names, name)
	}
	for _, name := range add {
		if name == "*" {
			want.Wildcard = true
		} else {
			want.Names[name] = true
		}
	}
	switch {
	case !asked && want.Empty():
		return
	case c.node.Delta:
		if !asked && c.legacy && want.Wildcard && len(want.Names) == 0 {
			add, drop = nil, nil
		}
		c.send(&request{typ: typ, subscribe: add, unsubscribe: drop})
		c.node.Subscribe(typ, add, drop, nil, time.Now())
		c.named[typ] = true
	case !c.named[typ] && want.Empty():
		return // an empty list still means all
	default:
		c.rename(typ, want, c.answered[typ])
	}
}

// rename sends the whole SotW subscription with a nonce.
func (c *client) rename(typ string, want oracle.Subscription, nonce string) {
	names := want.List()
	if c.legacy && want.Wildcard && len(want.Names) == 0 && !c.named[typ] {
		names = nil
	}
	c.send(&request{typ: typ, names: names, nonce: nonce})
	taken := c.node.Rename(typ, want, nonce, time.Now())
	c.named[typ] = c.named[typ] || taken && len(names) > 0
}

// answer answers the oldest pending response; with some only half of it is applied.
func (c *client) answer(ack, some bool) {
	if len(c.pending) == 0 {
		return
	}
	x := c.pending[0]
	c.pending = c.pending[1:]
	c.answered[x.Type] = x.Nonce
	a, refusal := oracle.Acked, ""
	applied := func(string) bool { return true }
	if !ack {
		a, refusal = oracle.Nacked, "no"
		half := x.halved()
		applied = func(name string) bool { return some && c.node.Delta && half[name] }
	}
	now := time.Now()
	c.node.Answer(x.Response, a, applied, now)
	if c.node.Delta {
		c.send(&request{typ: x.Type, nonce: x.Nonce, err: refusal})
		return
	}
	want := c.node.Wants(x.Type)
	names := want.List()
	if c.legacy && want.Wildcard && len(want.Names) == 0 && !c.named[x.Type] {
		names = nil
	}
	c.send(&request{typ: x.Type, names: names, nonce: x.Nonce, err: refusal})
	taken := c.node.Rename(x.Type, want, x.Nonce, now)
	c.named[x.Type] = c.named[x.Type] || taken && len(names) > 0
}

// halved gives every other name of a response.
func (r response) halved() map[string]bool {
	var names []string
	for name := range r.Resources {
		names = append(names, name)
	}
	names = append(names, r.Removed...)
	slices.Sort(names)
	half := map[string]bool{}
	for i, name := range names {
		half[name] = i%2 == 0
	}
	return half
}
