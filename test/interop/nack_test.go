package interop

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// startNackClients starts all clients in a lab that has the service echo, and waits until they use it.
func startNackClients(t *testing.T) (l *lab, clients []client, one string) {
	t.Helper()
	one, _ = startEcho(t, "one")
	// Probes come often, to show that they do not bring back what was refused.
	l = newLab(t, ack.Policy{ProbeInterval: 2 * time.Second, AckTimeout: 5 * time.Second})
	l.service("echo", one)
	clients = startAll(t, l.address)
	for _, c := range clients {
		wantAnswer(t, c, "echo", "one", startTime)
		l.wantState(t, c, ack.Fresh, soon)
	}
	return l, clients, one
}

// wantAnswer waits until a call of a service is answered by a backend.
func wantAnswer(t *testing.T, c client, service, backend string, d time.Duration) {
	t.Helper()
	var answer string
	var err error
	defer func() {
		if t.Failed() {
			t.Logf("%s: the last call of %s gave %q, %v", c.name, service, answer, err)
		}
	}()
	testwait.Within(t, d, "answered by "+backend, func() bool {
		answer, err = c.call(service)
		return err == nil && answer == backend
	})
}

// After a refusal nothing is sent again until something changes, the old
// resource stays in use, and the audit shows what the client said.
func TestRefusedAssignment(t *testing.T) {
	t.Parallel()
	l, clients, _ := startNackClients(t)
	name := interoptest.ClusterName("echo")
	bad := edit(t, l, mesh.TypeEndpoint, name, &endpointv3.ClusterLoadAssignment{}, func(a *endpointv3.ClusterLoadAssignment) {
		// grpc-node minds an address that comes twice, the others (Envoy too) a weight of 0.
		e := a.GetEndpoints()[0]
		e.LbEndpoints = append(e.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: e.GetLbEndpoints()[0].GetHostIdentifier(), LoadBalancingWeight: wrapperspb.UInt32(0),
		})
	})
	l.publish(bad)
	words := map[string]string{
		"envoy-delta": "Proto constraint validation failed", "envoy-sotw": "Proto constraint validation failed",
		"grpc-go": "weight", "grpc-python": "endpoint", "grpc-node": "address",
	}
	for _, c := range clients {
		l.wantNack(t, c, mesh.TypeEndpoint, name, words[c.name])
		t.Logf("%s says: %s", c.name, nack(l.node(t, c), mesh.TypeEndpoint).Message)
	}
	l.wantQuiet(t, clients)
	for _, c := range clients {
		wantAnswer(t, c, "echo", "one", soon)
		l.wantState(t, c, ack.Rejected, soon)
	}
	two, _ := startEcho(t, "two")
	l.service("echo", two)
	for _, c := range clients {
		wantAnswer(t, c, "echo", "two", soon)
		l.wantState(t, c, ack.Fresh, soon)
	}
}

// wantQuiet looks for 5 s at what is sent: nothing but probes, and no refusals of those.
func (l *lab) wantQuiet(t *testing.T, clients []client) {
	t.Helper()
	before := make(map[string]int)
	for _, c := range clients {
		before[c.name] = len(responses(l.log, c))
	}
	began := time.Now()
	quiet := time.NewTimer(5 * time.Second)
	defer quiet.Stop()
	<-quiet.C
	for _, c := range clients {
		after := responses(l.log, c)[before[c.name]:]
		if len(after) == 0 {
			t.Errorf("%s: no probe in 5 s: nothing is shown", c.name)
		}
		for _, r := range after {
			if !r.probe {
				t.Errorf("%s: sent although nothing changed: %+v", c.name, r)
			}
		}
		for _, e := range l.node(t, c).History {
			if e.Event == "rejected" && e.At.After(began) {
				t.Errorf("%s: refused again: %+v", c.name, e)
			}
		}
	}
}

// A refused cluster among good ones: the others are used, and a reconnect, at
// which some clients name the refused version as theirs, does not make it held.
func TestRefusedCluster(t *testing.T) {
	t.Parallel()
	l, clients, one := startNackClients(t)
	l.service("other", one)
	for _, c := range clients {
		wantAnswer(t, c, "other", "one", startTime)
	}
	name := interoptest.ClusterName("echo")
	good := edit(t, l, mesh.TypeCluster, name, &clusterv3.Cluster{}, func(*clusterv3.Cluster) {})
	bad := edit(t, l, mesh.TypeCluster, name, &clusterv3.Cluster{}, func(c *clusterv3.Cluster) {
		// gRPC takes no Maglev in this field, and Envoy no "self" here.
		c.LoadBalancingPolicy, c.LbPolicy = nil, clusterv3.Cluster_MAGLEV
		c.EdsClusterConfig.EdsConfig = &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: &corev3.SelfConfigSource{}},
		}
	})
	l.publish(bad)
	for _, c := range clients {
		l.wantNack(t, c, mesh.TypeCluster, name)
		t.Logf("%s says: %s", c.name, nack(l.node(t, c), mesh.TypeCluster).Message)
	}
	l.wantQuiet(t, clients)
	l.restart()
	for _, c := range clients {
		l.wantNack(t, c, mesh.TypeCluster, name)
		wantAnswer(t, c, "echo", "one", soon)
		wantAnswer(t, c, "other", "one", soon)
	}
	l.publish(good)
	for _, c := range clients {
		l.wantState(t, c, ack.Fresh, soon)
		wantAnswer(t, c, "echo", "one", soon)
	}
}
