package interop

import (
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/protobuf/proto"
)

// startEnvoyLab starts both Envoys in a lab that has the service echo.
func startEnvoyLab(t *testing.T) (l *lab, clients []client) {
	t.Helper()
	one, _ := startEcho(t, "one")
	l = newLab(t, ack.Policy{ProbeInterval: 2 * time.Second, AckTimeout: 2 * time.Second})
	l.service("echo", one)
	for _, s := range bothEnvoys {
		clients = append(clients, s(t, l.address))
	}
	for _, c := range clients {
		wantAnswer(t, c, "echo", "one", startTime)
		l.wantState(t, c, ack.Fresh, soon)
	}
	return l, clients
}

// namesake is the cluster of echo under another name; its assignment is called assignment.
func namesake(t *testing.T, l *lab, name, assignment string) mesh.Resource {
	t.Helper()
	r := edit(t, l, mesh.TypeCluster, interoptest.ClusterName("echo"), &clusterv3.Cluster{}, func(c *clusterv3.Cluster) {
		c.Name, c.AltStatName = name, ""
		c.EdsClusterConfig.ServiceName = assignment
	})
	r.Name, r.FollowedBy = name, []mesh.ResourceName{{Type: mesh.TypeEndpoint, Name: assignment}}
	return r
}

// Envoy warms a cluster without an assignment for 15 s, and withholds the
// acknowledgement of CDS so long. That is no silence: the node is pending, its
// stream is not reset, and no other cluster's endpoints wait.
func TestEnvoyWarmsForLong(t *testing.T) {
	t.Parallel()
	l, clients := startEnvoyLab(t)
	l.publish(namesake(t, l, "warming", "nobody has it"))
	pending := clients[1]
	l.wantState(t, pending, ack.Pending, soon)
	two, _ := startEcho(t, "two")
	began := time.Now()
	l.service("echo", two)
	for _, c := range clients {
		wantAnswer(t, c, "echo", "two", soon)
	}
	if warming := pending.envoy.Stat(t, "cluster_manager.warming_clusters"); warming != "1" {
		t.Errorf("%s clusters are warming, want 1: the test shows nothing", warming)
	}
	// Longer than any patience of the policy, and until Envoy gives up.
	testwait.Within(t, 20*time.Second, "done warming", func() bool {
		for _, c := range clients {
			n := l.node(t, c)
			if n.Resets > 0 || n.State != ack.Fresh && n.State != ack.Pending {
				t.Fatalf("%s after %v: %s (%s), %d resets", c.name, time.Since(began), n.State, n.Reason, n.Resets)
			}
		}
		return l.node(t, pending).State == ack.Fresh
	})
	if took := time.Since(began); took < 3*l.policy.AckTimeout {
		t.Errorf("warmed for %v only: the test shows nothing", took)
	}
}

// Two clusters with one assignment: both follow it, and a change of one of
// them does not make it wait.
func TestEnvoySharedServiceName(t *testing.T) {
	t.Parallel()
	l, clients := startEnvoyLab(t)
	shared := interoptest.ClusterName("echo")
	route := &routev3.RouteConfiguration{Name: "outbound"}
	for _, name := range []string{"a", "b"} {
		l.publish(namesake(t, l, name, shared))
		route.VirtualHosts = append(route.VirtualHosts, &routev3.VirtualHost{
			Name: name, Domains: []string{name + ".default:8080"},
			Routes: []*routev3.Route{{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: name}}},
			}},
		})
	}
	l.publish(resource(t, mesh.TypeRoute, "outbound", route))
	for _, c := range clients {
		wantAnswer(t, c, "a", "one", soon)
		wantAnswer(t, c, "b", "one", soon)
		l.wantState(t, c, ack.Fresh, soon)
	}
	changed := namesake(t, l, "b", shared)
	var m clusterv3.Cluster
	if err := proto.Unmarshal(changed.Body, &m); err != nil {
		t.Fatal(err)
	}
	m.ConnectTimeout.Seconds = 7
	changed.Body = resource(t, mesh.TypeCluster, "b", &m).Body
	l.publish(changed)
	for _, c := range clients {
		testwait.Within(t, soon, "the change in effect", func() bool {
			return strings.Contains(meshtest.Get(t, c.envoy.Admin, "/config_dump?resource=dynamic_active_clusters"), `"connect_timeout": "7s"`)
		})
		l.wantState(t, c, ack.Fresh, soon)
	}
	two, _ := startEcho(t, "two")
	l.service("echo", two)
	for _, c := range clients {
		wantAnswer(t, c, "a", "two", soon)
		wantAnswer(t, c, "b", "two", soon)
		l.wantState(t, c, ack.Fresh, soon)
	}
}
