package interop

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/refresh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/translate"
	"github.com/freshmesh/freshmesh/pkg/xds"
	"github.com/freshmesh/freshmesh/pkg/xds/lrs"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
)

// lab is a control plane without a source: the test publishes resources by
// hand, good ones made by translation, and bad ones.
type lab struct {
	t      *testing.T
	store  *snapshot.Store
	policy ack.Policy
	// address is where xDS is served.
	address string
	log     *meshtest.Log
	server  *xds.Server
	stop    func()

	translator *translate.Translator
	// recorder may be nil.
	recorder *recorder

	mu      sync.Mutex // guards reports
	reports []refresh.Report
}

func newLab(t *testing.T, p ack.Policy) *lab {
	t.Helper()
	l := &lab{
		t: t, store: snapshot.New(snapshot.Config{}), policy: p, address: "127.0.0.1:0",
		translator: translate.New(translate.Config{ClusterDomain: "cluster.local"}),
	}
	l.up()
	t.Cleanup(func() { l.stop() })
	return l
}

// restart ends every stream, and serves again on the same port with no memory of its clients.
func (l *lab) restart() {
	l.t.Helper()
	l.stop()
	l.up()
}

func (l *lab) up() {
	l.t.Helper()
	listener, err := testaddr.Listen(context.Background(), l.address)
	if err != nil {
		l.t.Fatal(err)
	}
	log := &meshtest.Log{}
	l.address, l.log = listener.Addr().String(), log
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: log})
	l.server = xds.New(xds.Config{
		Store: l.store, Policy: l.policy, Ready: func() error { return nil }, Own: labListeners,
		Logger: logger.Named("xds"), Registerer: prometheus.NewRegistry(), Propagation: xds.Propagation(),
	})
	done := make(chan struct{})
	server := grpc.NewServer(append(xds.ServerOptions(),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))...)
	l.server.Register(server)
	loadstatsv3.RegisterLoadReportingServiceServer(server, lrs.New(lrs.Config{
		Sink: l, Interval: time.Second, Logger: logger, Done: done,
	}))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	l.stop = func() {
		l.server.Shutdown()
		close(done)
		server.GracefulStop()
		if err := <-served; err != nil {
			l.t.Errorf("serve: %v", err)
		}
		if l.t.Failed() {
			l.t.Logf("the control plane logged:\n%s", interoptest.Tail(log.String(), 100))
		}
	}
}

func labListeners(n xds.Node) ([]mesh.Resource, error) {
	if n.View.Listeners != mesh.ListenersSocket {
		return nil, nil
	}
	resources, _ := translate.NodeListeners(translate.NodeOptions{OutboundAddress: n.OutboundAddress})
	return resources, nil
}

// Submit implements lrs.Sink.
func (l *lab) Submit(r refresh.Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports = append(l.reports, r)
}

func (l *lab) reported() []refresh.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]refresh.Report(nil), l.reports...)
}

// publish puts resources into the store as they are.
func (l *lab) publish(resources ...mesh.Resource) {
	l.update(mesh.Update{Put: resources})
}

func (l *lab) update(u mesh.Update) {
	if l.recorder != nil {
		l.recorder.publish(u)
	}
	l.store.Publish(u, time.Now())
}

// service publishes what translation makes of a gRPC service, and gives it.
func (l *lab) service(name string, addresses ...string) []mesh.Resource {
	l.t.Helper()
	key := mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: name}
	changes := []translate.Change{{Put: &mesh.Service{
		Meta: mesh.Meta{Key: key}, Ports: []mesh.ServicePort{{Name: "grpc", Port: 8080, Protocol: "TCP", AppProtocol: "grpc"}},
	}}}
	for _, address := range addresses {
		at := netip.MustParseAddrPort(address)
		slice := mesh.Key{Kind: mesh.KindEndpointSlice, Namespace: "default", Name: name}
		changes = append(changes, translate.Change{Put: &mesh.EndpointSlice{
			Meta: mesh.Meta{Key: slice}, Service: name, AddressType: "IPv4",
			Ports:     []mesh.SlicePort{{Name: "grpc", Port: at.Port(), Protocol: "TCP"}},
			Endpoints: []mesh.SliceEndpoint{{Addresses: []netip.Addr{at.Addr()}}},
		}})
	}
	update := l.translator.Apply(changes)
	l.update(update)
	return update.Put
}

// edit gives a resource of the store with its message changed by f; it is not published.
func edit[M proto.Message](t *testing.T, l *lab, kind mesh.Type, name string, m M, f func(M)) mesh.Resource {
	t.Helper()
	body := l.store.View(mesh.View{Listeners: mesh.ListenersAPI}).Body(kind, mesh.Intern(name))
	if body == nil {
		t.Fatalf("no %s %s", kind.Short(), name)
	}
	if err := proto.Unmarshal(body.Value(), m); err != nil {
		t.Fatal(err)
	}
	f(m)
	r := resource(t, kind, name, m)
	if kind == mesh.TypeListener {
		r.For = mesh.ListenersAPI
	}
	if kind == mesh.TypeCluster {
		r.FollowedBy = []mesh.ResourceName{{Type: mesh.TypeEndpoint, Name: name}}
	}
	return r
}

// resource packs a message.
func resource(t *testing.T, kind mesh.Type, name string, m proto.Message) mesh.Resource {
	t.Helper()
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return mesh.Resource{Type: kind, Name: name, Body: body}
}

// node gives what the audit would say of a client; the zero Node when it is not known.
func (l *lab) node(t *testing.T, c client) ack.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	nodes, err := l.server.Nodes(ctx, mesh.NodeID(c.name))
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) == 0 {
		return ack.Node{}
	}
	return nodes[0]
}

// wantState waits until a client is in a state.
func (l *lab) wantState(t *testing.T, c client, s ack.State, d time.Duration) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the audit says: %+v", l.node(t, c))
		}
	}()
	testwait.Within(t, d, string(s), func() bool { return l.node(t, c).State == s })
}

// nack gives the refusal that the audit shows for a type, or nil.
func nack(n ack.Node, kind mesh.Type) *ack.Nack {
	for _, s := range n.Types {
		if s.Type == kind.Short() && s.Nack != nil {
			return s.Nack
		}
	}
	return nil
}

// wantNack waits until the audit shows that a client refuses a resource, in the
// client's own words: the message holds each of parts.
func (l *lab) wantNack(t *testing.T, c client, kind mesh.Type, name string, parts ...string) {
	t.Helper()
	l.wantState(t, c, ack.Rejected, soon)
	refused := nack(l.node(t, c), kind)
	if refused == nil {
		t.Fatalf("no refusal of a %s: %+v", kind.Short(), l.node(t, c))
	}
	for _, part := range append(parts, name) {
		if !strings.Contains(strings.Join(append(refused.Resources, refused.Message), " "), part) {
			t.Errorf("refused: %+v; want %q", refused, part)
		}
	}
}
