package interop

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/bootstrap"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// bothEnvoys are the two protocol variants.
var bothEnvoys = []starter{envoyDelta, envoySotW}

func (w *world) startEnvoys(t *testing.T) {
	t.Helper()
	for _, s := range bothEnvoys {
		w.clients = append(w.clients, s(t, w.address))
	}
}

// Envoy routes HTTP/1.1 by authority, as our data plane does.
func TestEnvoyRoutesByAuthority(t *testing.T) {
	t.Parallel()
	backend := meshtest.StartBackend(t, "one")
	w := newWorld(t, nil)
	w.manifests.Service("echo", backend.Address)
	w.startEnvoys(t)
	w.each(t, func(t *testing.T, c client) {
		w.wantFresh(t, c, startTime)
		client := &meshtest.Client{Address: c.envoy.Outbound}
		defer client.Close()
		testwait.Within(t, soon, "answered", func() bool {
			status, body, err := client.Get("echo.default.svc.cluster.local:8080")
			return err == nil && status == http.StatusOK && body == "one"
		})
		for authority, want := range map[string]int{
			"echo.default.svc:8080": http.StatusOK, "echo.default:8080": http.StatusOK, "echo:8080": http.StatusOK,
			"echo.default:8081": http.StatusNotFound, "echo": http.StatusNotFound, "other.default:8080": http.StatusNotFound,
		} {
			if status, body, err := client.Get(authority); err != nil || status != want {
				t.Errorf("%s: status %d (%s, %v), want %d", authority, status, body, err, want)
			}
		}
		if n := c.envoy.rejections(t); n != "" {
			t.Errorf("Envoy counts rejected updates: %s", n)
		}
	})
}

// rejections gives Envoy's own counters of refused updates that are not 0.
func (e *envoy) rejections(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(meshtest.Get(t, e.Admin, "/stats?filter=update_rejected")) {
		if !strings.HasSuffix(strings.TrimSpace(line), ": 0") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// A listener that passes TCP on, as the node's metadata asks for.
func TestEnvoyPassesTCPOn(t *testing.T) {
	t.Parallel()
	backend := meshtest.StartBackend(t, "one")
	w := newWorld(t, nil)
	w.manifests.Put(meshtest.Service{Name: "lines", AppProtocol: "tcp", Addresses: []string{backend.Address}})
	address := testaddr.Free(t, "127.0.0.1")
	startEnvoy(t, bootstrap.Options{NodeID: "envoy-tcp", XDSAddress: w.address, TCP: map[string]string{address: interoptest.ClusterName("lines")}})
	client := &meshtest.Client{Address: address}
	defer client.Close()
	testwait.Within(t, startTime, "answered", func() bool {
		status, body, err := client.Get("whatever")
		return err == nil && status == http.StatusOK && body == "one"
	})
}

// An assignment of 1,000 endpoints, all of which are used.
func TestEnvoyThousandEndpoints(t *testing.T) {
	t.Parallel()
	const endpoints = 1000
	w := newWorld(t, nil)
	big := func(n int) string {
		var b strings.Builder
		b.WriteString("apiVersion: v1\nkind: Service\nmetadata: {name: big}\nspec:\n  ports: [{name: http, port: 8080, appProtocol: grpc}]\n")
		for i := range n {
			if i%100 == 0 { // the size of Kubernetes' own slices
				fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: big-%d, labels: {kubernetes.io/service-name: big}}\n", i/100)
				b.WriteString("addressType: IPv4\nports: [{name: http, port: 9}]\nendpoints:\n")
			}
			fmt.Fprintf(&b, "- {addresses: [127.1.%d.%d], conditions: {ready: true}}\n", i/250, 1+i%250)
		}
		return b.String()
	}
	w.manifest(t, "big", big(endpoints))
	w.startEnvoys(t)
	count := func(c client) int {
		return strings.Count(meshtest.Get(t, c.envoy.Admin, "/clusters"), "::health_flags::healthy")
	}
	w.each(t, func(t *testing.T, c client) {
		w.wantFresh(t, c, startTime)
		testwait.Within(t, soon, "all endpoints in use", func() bool { return count(c) == endpoints+1 }) // and the control plane's
	})
	w.manifest(t, "big", big(endpoints-1))
	w.each(t, func(t *testing.T, c client) {
		testwait.Within(t, soon, "one endpoint gone", func() bool { return count(c) == endpoints })
		w.wantFresh(t, c, soon)
	})
}

// A changed cluster is warmed until its assignment comes again, though that did
// not change; it must come at once, or Envoy waits for 15 s.
func TestEnvoyChangedCluster(t *testing.T) {
	t.Parallel()
	one, _ := startEcho(t, "one")
	w := newWorld(t, nil)
	w.service("echo", one)
	w.startEnvoys(t)
	loads := make(map[string]*load)
	w.each(t, func(t *testing.T, c client) {
		wantAnswer(t, c, "echo", "one", startTime)
		w.wantFresh(t, c, soon)
	})
	for _, c := range w.clients {
		loads[c.name] = startLoad(t, c, "echo")
	}
	for i := range 5 {
		w.manifests.Put(meshtest.Service{
			Name: "echo", AppProtocol: "grpc", Addresses: []string{one},
			Annotations: map[string]string{"connect-timeout": fmt.Sprintf("%ds", 2+i)},
		})
		w.each(t, func(t *testing.T, c client) {
			testwait.Within(t, soon, "the change in effect", func() bool {
				return strings.Contains(meshtest.Get(t, c.envoy.Admin, "/config_dump?resource=dynamic_active_clusters"),
					fmt.Sprintf(`"connect_timeout": "%ds"`, 2+i))
			})
			w.wantFresh(t, c, soon)
			if warming := c.envoy.Stat(t, "cluster_manager.warming_clusters"); warming != "0" {
				t.Errorf("%s clusters are warming", warming)
			}
		})
	}
	w.each(t, func(t *testing.T, c client) { loads[c.name].wantNoFailure(t) })
}

// Envoy acknowledges no empty EDS response once it has unsubscribed from every
// assignment: it must be probed by something else.
func TestEnvoyWithoutServicesIsProbed(t *testing.T) {
	t.Parallel()
	one, _ := startEcho(t, "one")
	w := newWorld(t, func(c *controlplane.Config) {
		c.Policy = ack.Policy{ProbeInterval: time.Second, AckTimeout: 2 * time.Second}
	})
	w.service("echo", one)
	w.startEnvoys(t)
	w.each(t, func(t *testing.T, c client) { wantAnswer(t, c, "echo", "one", startTime) })
	w.manifests.Remove("echo")
	w.each(t, func(t *testing.T, c client) {
		testwait.Within(t, soon, "refused", func() bool { _, err := c.call("echo"); return err != nil })
	})
	began := time.Now()
	w.each(t, func(t *testing.T, c client) {
		for range 3 {
			testwait.Within(t, soon, "probed, and the probe acknowledged", func() bool {
				return probed(w.node(t, c).History, began)
			})
			began = time.Now()
		}
		if n := w.node(t, c); n.State != ack.Fresh || n.Resets != 0 {
			t.Errorf("state %s (%s), %d resets", n.State, n.Reason, n.Resets)
		}
	})
}

// Envoy's load reports count by endpoint, and its failures drive the same
// check as our data plane's do.
func TestEnvoyLoadReports(t *testing.T) {
	t.Parallel()
	one, stop := startEcho(t, "one")
	w := newWorld(t, func(c *controlplane.Config) { c.ReportInterval = time.Second })
	w.service("echo", one)
	w.startEnvoys(t)
	w.each(t, func(t *testing.T, c client) { wantAnswer(t, c, "echo", "one", startTime) })
	stop()
	w.each(t, func(t *testing.T, c client) {
		testwait.Within(t, soon, "reported, and judged", func() bool {
			_, err := c.call("echo")
			return err != nil && w.control.Log.Has("node="+c.name, "verdict=current")
		})
	})
	verdicts := 0
	for line := range strings.Lines(meshtest.Get(t, w.control.Admin, "/metrics")) {
		if strings.HasPrefix(line, `freshmesh_refresh_total{verdict="current"} `) {
			verdicts++
		}
	}
	if verdicts != 1 {
		t.Errorf("%d metrics of the verdict", verdicts)
	}
}

// What Envoy says by endpoint: a connect that fails is an error of a request
// that was never issued (total_fail_connections of the locality stays 0).
func TestEnvoyLoadReportsNameTheEndpoint(t *testing.T) {
	t.Parallel()
	dead, stop := startEcho(t, "dead")
	alive, _ := startEcho(t, "alive")
	l := newLab(t, meshtest.Policy)
	l.service("half", dead)
	l.service("whole", alive)
	c := envoyDelta(t, l.address)
	wantAnswer(t, c, "half", "dead", startTime)
	wantAnswer(t, c, "whole", "alive", soon)
	stop()
	testwait.Within(t, soon, "a report of the endpoint", func() bool {
		if _, err := c.call("half"); err == nil {
			t.Fatal("a dead backend answered")
		}
		for _, r := range l.reported() {
			if r.Node == mesh.NodeID(c.name) && r.Cluster == interoptest.ClusterName("half") && len(r.Endpoints) == 1 &&
				r.Endpoints[0].Address.String() == dead && r.Endpoints[0].Errors > r.Endpoints[0].Issued {
				return true
			}
		}
		return false
	})
	for _, r := range l.reported() {
		if r.Cluster == interoptest.ClusterName("whole") {
			t.Errorf("reported as failing: %+v", r)
		}
	}
}
