package interop

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	http_connection_managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

var grpcClients = []starter{grpcGo, grpcPython, grpcNode}

// startGRPCLab starts the gRPC clients in a lab that has the service echo.
func startGRPCLab(t *testing.T) (l *lab, clients []client) {
	t.Helper()
	one, _ := startEcho(t, "one")
	l = newLab(t, ack.Policy{ProbeInterval: 2 * time.Second, AckTimeout: 5 * time.Second})
	l.service("echo", one)
	for _, s := range grpcClients {
		clients = append(clients, s(t, l.address))
	}
	for _, c := range clients {
		wantAnswer(t, c, "echo", "one", startTime)
		l.wantState(t, c, ack.Fresh, soon)
	}
	return l, clients
}

// A refused listener stays in use, except with grpc-node, which drops it and
// fails calls at once: refused is more than a word in the audit there.
func TestRefusedListener(t *testing.T) {
	t.Parallel()
	l, clients := startGRPCLab(t)
	name := interoptest.ClusterName("echo")
	good := edit(t, l, mesh.TypeListener, name, &listenerv3.Listener{}, func(*listenerv3.Listener) {})
	bad := edit(t, l, mesh.TypeListener, name, &listenerv3.Listener{}, func(m *listenerv3.Listener) {
		changeManager(t, m, func(manager *http_connection_managerv3.HttpConnectionManager) {
			manager.HttpFilters[0].ConfigType = nil
		})
	})
	l.publish(bad)
	for _, c := range clients {
		l.wantNack(t, c, mesh.TypeListener, name)
		answer, err := c.call("echo")
		if kept := c.name != "grpc-node"; kept != (err == nil) {
			t.Errorf("%s: %s, %v", c.name, answer, err)
		}
	}
	l.wantQuiet(t, clients)
	l.wantCured(t, clients, good)
}

// wantCured publishes the listener of before, and looks whether the clients
// use it. grpc-node keeps the old bytes of a resource that it has dropped, and
// takes equal ones for no news: only other bytes cure it.
func (l *lab) wantCured(t *testing.T, clients []client, good mesh.Resource) {
	t.Helper()
	l.publish(good)
	for _, c := range clients {
		l.wantState(t, c, ack.Fresh, soon)
		if c.name != "grpc-node" {
			wantAnswer(t, c, "echo", "one", soon)
		} else if answer, err := c.call("echo"); err == nil {
			t.Errorf("%s: answered by %s: it has learned, and this exception can go", c.name, answer)
		}
	}
	l.publish(edit(t, l, mesh.TypeListener, good.Name, &listenerv3.Listener{}, func(m *listenerv3.Listener) {
		changeManager(t, m, func(manager *http_connection_managerv3.HttpConnectionManager) { manager.StatPrefix = "other" })
	}))
	for _, c := range clients {
		l.wantState(t, c, ack.Fresh, soon)
		wantAnswer(t, c, "echo", "one", soon)
	}
}

func changeManager(t *testing.T, m *listenerv3.Listener, f func(*http_connection_managerv3.HttpConnectionManager)) {
	t.Helper()
	var manager http_connection_managerv3.HttpConnectionManager
	if err := m.GetApiListener().GetApiListener().UnmarshalTo(&manager); err != nil {
		t.Fatal(err)
	}
	f(&manager)
	packed, err := anypb.New(&manager)
	if err != nil {
		t.Fatal(err)
	}
	m.ApiListener.ApiListener = packed
}

// Bytes that are no message: gRPC clients drop the resource, and say so.
func TestUndecodableListener(t *testing.T) {
	t.Parallel()
	l, clients := startGRPCLab(t)
	name := interoptest.ClusterName("echo")
	good := edit(t, l, mesh.TypeListener, name, &listenerv3.Listener{}, func(*listenerv3.Listener) {})
	bad := good
	bad.Body = []byte{0xff, 0xff, 0xff}
	l.publish(bad)
	for _, c := range clients {
		l.wantState(t, c, ack.Rejected, soon)
		refused := nack(l.node(t, c), mesh.TypeListener)
		if refused == nil || refused.Message == "" {
			t.Fatalf("%s: no refusal is shown", c.name)
		}
		t.Logf("%s says: %s", c.name, refused.Message)
	}
	l.wantQuiet(t, clients)
	l.wantCured(t, clients, good)
}

// A stream that is closed comes back on the same connection, and no call fails.
func TestClosedStream(t *testing.T) {
	t.Parallel()
	one, _ := startEcho(t, "one")
	l := newLab(t, ack.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 5 * time.Second})
	l.service("echo", one)
	clients := startAll(t, l.address)
	loads := make(map[string]*load)
	for _, c := range clients {
		wantAnswer(t, c, "echo", "one", startTime)
		loads[c.name] = startLoad(t, c, "echo")
		l.wantState(t, c, ack.Fresh, startTime)
	}
	l.restart()
	two, _ := startEcho(t, "two")
	l.service("echo", two)
	for _, c := range clients {
		l.wantState(t, c, ack.Fresh, soon)
		wantAnswer(t, c, "echo", "two", soon)
		loads[c.name].wantNoFailure(t)
	}
}

// A stream that closes while a client waits for a cluster: grpc-node keeps the
// 15 s timer of the old stream, and calls the cluster missing when that ends,
// although it has been delivered. Only other bytes cure it. The others do not.
func TestClusterAwaitedOverAClosedStream(t *testing.T) {
	t.Parallel()
	l, clients := startGRPCLab(t)
	one, _ := startEcho(t, "one")
	made := l.service("late", one)
	var kept []mesh.Resource
	for _, r := range made {
		if r.Name == interoptest.ClusterName("late") && (r.Type == mesh.TypeCluster || r.Type == mesh.TypeEndpoint) {
			kept = append(kept, r)
			l.store.Publish(mesh.Update{Remove: []mesh.Removal{{ResourceName: mesh.ResourceName{Type: r.Type, Name: r.Name}}}}, time.Now())
		}
	}
	for _, c := range clients {
		if answer, err := c.call("late"); err == nil {
			t.Fatalf("%s: answered by %s without a cluster", c.name, answer)
		}
	}
	began := time.Now()
	l.restart()
	l.publish(kept...)
	for _, c := range clients {
		wantAnswer(t, c, "late", "one", soon)
		l.wantState(t, c, ack.Fresh, soon)
	}
	timer := time.NewTimer(time.Until(began.Add(16 * time.Second)))
	defer timer.Stop()
	<-timer.C
	for _, c := range clients {
		if answer, err := c.call("late"); (c.name == "grpc-node") != (err != nil) {
			t.Errorf("%s: %s, %v", c.name, answer, err)
		}
	}
	l.publish(edit(t, l, mesh.TypeCluster, interoptest.ClusterName("late"), &clusterv3.Cluster{}, func(c *clusterv3.Cluster) {
		c.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxRequests: wrapperspb.UInt32(100)}}}
	}))
	for _, c := range clients {
		wantAnswer(t, c, "late", "one", soon)
	}
}
