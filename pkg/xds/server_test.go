package xds_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server over an in-memory connection, in a bubble.
type rig struct {
	t      *testing.T
	store  *snapshot.Store
	server *xds.Server
	conn   *grpc.ClientConn
	// dial gives further connections.
	dial     xdstest.Dial
	registry *prometheus.Registry
}

func newRig(t *testing.T, change func(*xds.Config)) *rig {
	t.Helper()
	r := &rig{t: t, store: snapshot.New(snapshot.Config{}), registry: prometheus.NewRegistry()}
	c := xds.Config{
		Store: r.store, Policy: ack.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 5 * time.Second},
		Ready: func() error { return nil }, Logger: hclog.NewNullLogger(),
		Registerer: r.registry, Propagation: xds.Propagation(),
	}
	if change != nil {
		change(&c)
	}
	r.server = xds.New(c)
	r.dial = xdstest.ServeMany(t, r.server.Register, xds.ServerOptions()...)
	r.conn = r.dial(nil)
	t.Cleanup(r.server.Shutdown)
	return r
}

func (r *rig) put(resources ...mesh.Resource) {
	r.store.Publish(mesh.Update{Put: resources}, time.Now())
}

func (r *rig) open(p xdstest.Protocol, id string) *xdstest.Stream {
	return xdstest.Open(r.t, r.conn, p, &corev3.Node{Id: id})
}

func (r *rig) nodes() []ack.Node {
	r.t.Helper()
	nodes, err := r.server.Nodes(r.t.Context(), "")
	if err != nil {
		r.t.Fatal(err)
	}
	return nodes
}

// metric compares one family of the registry.
func (r *rig) metric(name, want string) {
	r.t.Helper()
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), name); err != nil {
		r.t.Error(err)
	}
}

func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestRefusedStreams(t *testing.T) {
	listeners := &structpb.Struct{Fields: map[string]*structpb.Value{"listeners": structpb.NewStringValue("both")}}
	tests := []struct {
		name    string
		change  func(*xds.Config)
		node    *corev3.Node
		request xdstest.Request
		code    codes.Code
		message string
	}{
		{name: "no node id", node: &corev3.Node{}, request: xdstest.Request{Type: mesh.TypeCluster}, code: codes.InvalidArgument, message: "node.id"},
		{name: "no type", node: &corev3.Node{Id: "n"}, code: codes.InvalidArgument, message: "type_url"},
		{
			name: "malformed metadata", node: &corev3.Node{Id: "n", Metadata: listeners},
			request: xdstest.Request{Type: mesh.TypeCluster}, code: codes.InvalidArgument, message: "node.metadata.listeners",
		},
		{
			name: "source not ready", change: func(c *xds.Config) { c.Ready = func() error { return errors.New("pods are not synced") } },
			node: &corev3.Node{Id: "n"}, request: xdstest.Request{Type: mesh.TypeCluster}, code: codes.Unavailable, message: "pods are not synced",
		},
		{
			name: "own resources refused", change: func(c *xds.Config) {
				c.Own = func(xds.Node) ([]mesh.Resource, error) { return nil, errors.New("tcp: bad address") }
			},
			node: &corev3.Node{Id: "n"}, request: xdstest.Request{Type: mesh.TypeCluster}, code: codes.InvalidArgument, message: "tcp: bad address",
		},
		{
			name: "too many names", change: func(c *xds.Config) { c.MaxNames = 3 }, node: &corev3.Node{Id: "n"},
			request: xdstest.Request{Type: mesh.TypeEndpoint, Names: []string{"a", "b", "c"}, Subscribe: []string{"a", "b", "c"}},
			code:    codes.ResourceExhausted, message: "too_many_names",
		},
	}
	for _, test := range tests {
		for _, p := range []xdstest.Protocol{xdstest.SotW, xdstest.Delta} {
			t.Run(test.name+" "+string(p), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					r := newRig(t, test.change)
					s := xdstest.Open(t, r.conn, p, test.node)
					s.Send(test.request)
					if code, message := s.ExpectEnd(); code != test.code || !strings.Contains(message, test.message) {
						t.Errorf("ended with %v %q, want %v %q", code, message, test.code, test.message)
					}
				})
			})
		}
	}
}

func TestShutdownEndsEveryStream(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		mute := r.open(xdstest.Delta, "mute") // has not sent its first request
		s := r.open(xdstest.SotW, "n")
		s.Subscribe(mesh.TypeCluster)
		s.ExpectAcked("cds empty")
		r.server.Shutdown()
		for _, stream := range []*xdstest.Stream{mute, s} {
			if code, message := stream.ExpectEnd(); code != codes.Unavailable || !strings.Contains(message, "stopping") {
				t.Errorf("ended with %v %q", code, message)
			}
		}
	})
}

func TestTwoStreamsOfOneNode(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.put(xdstest.Resource(mesh.TypeCluster, "A", "v1"), xdstest.Resource(mesh.TypeEndpoint, "A", "v1"))
		a, b := r.open(xdstest.Delta, "n"), r.open(xdstest.SotW, "n")
		a.Subscribe(mesh.TypeCluster, "*")
		a.ExpectAcked("cds +A@v1")
		time.Sleep(time.Millisecond) // bubble time
		b.Subscribe(mesh.TypeEndpoint, "A")
		b.ExpectText("eds +A@v1")
		synctest.Wait()
		n := r.nodes()
		if len(n) != 1 || n[0].Streams != 2 || len(n[0].Types) != 2 || n[0].State != ack.Pending || n[0].Protocol != "delta+sotw" {
			t.Errorf("got %+v", n)
		}
		b.Close()
		synctest.Wait()
		if n := r.nodes(); len(n) != 1 || n[0].Streams != 1 || n[0].State != ack.Fresh {
			t.Errorf("got %+v after one was closed", n)
		}
	})
}

func TestDisconnectedIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		s := r.open(xdstest.Delta, "n")
		s.Subscribe(mesh.TypeCluster, "*")
		s.ExpectAcked("cds empty")
		s.Close() // the answer may be on its way still
		synctest.Wait()
		if n := r.nodes(); len(n) != 1 || n[0].State != ack.Disconnected || n[0].Resets != 0 {
			t.Errorf("got %+v at once", n)
		}
		time.Sleep(10 * time.Minute) // bubble time
		if n := r.nodes(); len(n) != 1 || n[0].State != ack.Disconnected || n[0].Streams != 0 || n[0].DisconnectedAt == nil {
			t.Errorf("got %+v after 10 min", n)
		}
		time.Sleep(time.Second) // bubble time
		if n := r.nodes(); len(n) != 0 {
			t.Errorf("got %+v after more than 10 min", n)
		}
	})
}

// silence opens a stream that never acknowledges, and gives how long the server bears it.
func (r *rig) silence() time.Duration {
	s := r.open(xdstest.Delta, "n")
	s.Subscribe(mesh.TypeCluster, "*")
	s.ExpectText("cds empty")
	begin := time.Now()
	for s.Ended() == nil {
		time.Sleep(100 * time.Millisecond) // bubble time
	}
	return time.Since(begin).Round(time.Second)
}

func TestPatienceGrowsWithResetsInARow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		for i, want := range []time.Duration{5, 5, 10, 20, 40, 40} {
			if got := r.silence(); got != want*time.Second {
				t.Errorf("reset %d after %v, want %vs", i+1, got, want)
			}
		}
		// A node that has been well for long begins anew, whatever it did before.
		s := r.open(xdstest.Delta, "n")
		s.Subscribe(mesh.TypeCluster, "*")
		s.ExpectAcked("cds empty")
		for range 100 {
			time.Sleep(10 * time.Second) // bubble time
			for _, probe := range s.Arrived() {
				s.Ack(probe)
			}
		}
		s.Close()
		synctest.Wait()
		for i, want := range []time.Duration{5, 5, 10} {
			if got := r.silence(); got != want*time.Second {
				t.Errorf("reset %d after a good time after %v, want %vs", i+1, got, want)
			}
		}
		r.resets(map[string]int{"ack_timeout": 9})
	})
}

func TestSendBlocked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		big := strings.Repeat("x", 1<<20)
		r.put(xdstest.Resource(mesh.TypeCluster, "A", big), xdstest.Resource(mesh.TypeEndpoint, "A", big), xdstest.Resource(mesh.TypeRoute, "A", big))
		s := r.open(xdstest.Delta, "n")
		s.Pause()
		s.Subscribe(mesh.TypeRoute, "A") // the reader may be in the middle of one receive
		s.Subscribe(mesh.TypeCluster, "*")
		s.Subscribe(mesh.TypeEndpoint, "A")
		healthy := r.open(xdstest.Delta, "healthy")
		healthy.Subscribe(mesh.TypeListener, "*")
		healthy.ExpectAcked("lds empty")
		time.Sleep(4900 * time.Millisecond) // bubble time
		n := r.nodes()
		if len(n) != 2 || n[1].State != ack.Pending || n[0].State != ack.Fresh {
			t.Errorf("while the send is blocked the audit says %+v", n)
		}
		time.Sleep(200 * time.Millisecond) // bubble time
		r.resets(map[string]int{"send_blocked": 1})
		if n := r.nodes(); n[1].State != ack.Disconnected || n[1].Resets != 1 {
			t.Errorf("after it the audit says %+v", n[1])
		}
		s.Resume()
		if code, message := s.ExpectEnd(); code != codes.Unavailable || !strings.Contains(message, "send_blocked") {
			t.Errorf("ended with %v %q", code, message)
		}
	})
}

func TestMuteClientsDelayNobody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.put(xdstest.Resource(mesh.TypeCluster, "A", "v1"))
		healthy := r.open(xdstest.Delta, "healthy")
		healthy.Subscribe(mesh.TypeCluster, "*")
		healthy.ExpectAcked("cds +A@v1")
		for i := range 500 {
			r.open(xdstest.Delta, fmt.Sprintf("mute-%03d", i)).Subscribe(mesh.TypeCluster, "*")
		}
		synctest.Wait()
		for i := range 10 {
			label := fmt.Sprintf("v%d", i+2)
			before := time.Now()
			r.put(xdstest.Resource(mesh.TypeCluster, "A", label))
			healthy.ExpectAcked("cds +A@" + label)
			if d := time.Since(before); d != 0 {
				t.Errorf("change %d took %v of bubble time", i, d)
			}
		}
		synctest.Wait()
		r.metric("freshmesh_nodes", `
# HELP freshmesh_nodes Nodes by state, as in the audit.
# TYPE freshmesh_nodes gauge
freshmesh_nodes{state="disconnected"} 0
freshmesh_nodes{state="fresh"} 1
freshmesh_nodes{state="pending"} 500
freshmesh_nodes{state="rejected"} 0
freshmesh_nodes{state="stale"} 0
`)
	})
}

func TestNackIsCounted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		other := mesh.Type("type.googleapis.com/example.Other")
		r.put(xdstest.Resource(mesh.TypeRoute, "A", "v1"), xdstest.Resource(other, "A", "v1"))
		s := r.open(xdstest.SotW, "n")
		s.Subscribe(mesh.TypeRoute, "A")
		s.Nack(s.ExpectText("rds +A@v1"), "bad route")
		s.Subscribe(other, "A")
		s.Nack(s.Expect(), "bad other")
		synctest.Wait()
		if n := r.nodes(); n[0].State != ack.Rejected || n[0].Reason != "rds: bad route" {
			t.Errorf("got %+v", n[0])
		}
		r.metric("freshmesh_nacks_total", `
# HELP freshmesh_nacks_total Responses that clients refused, by resource type.
# TYPE freshmesh_nacks_total counter
freshmesh_nacks_total{type="other"} 1
freshmesh_nacks_total{type="rds"} 1
`)
	})
}

// A node whose only names do not exist is alive nevertheless, and so is one
// that has given up everything.
func TestNothingToProbeIsNotStale(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		s := r.open(xdstest.SotW, "n")
		s.Subscribe(mesh.TypeEndpoint, "missing")
		s.ExpectAcked("eds empty")
		time.Sleep(10 * time.Second) // bubble time
		s.ExpectAcked("eds empty")
		s.Unsubscribe(mesh.TypeEndpoint, "missing")
		time.Sleep(time.Minute) // bubble time
		s.Silent()
		if n := r.nodes(); n[0].State != ack.Fresh {
			t.Errorf("got %+v", n[0])
		}
	})
}
