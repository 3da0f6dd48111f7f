package interop

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
)

// manifest writes a file of Kubernetes YAML.
func (w *world) manifest(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.manifests.Dir, name+".yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Whatever a service asks for by annotations, every client takes it: nothing is
// refused, and calls are answered.
func TestEveryClientTakesEveryAnnotation(t *testing.T) {
	t.Parallel()
	one, _ := startEcho(t, "one")
	w := newWorld(t, nil)
	policies := []string{"least-request", "round-robin", "random", "ring-hash", "maglev"}
	for _, policy := range policies {
		w.manifests.Put(meshtest.Service{
			Name: policy, AppProtocol: "grpc", Addresses: []string{one},
			Annotations: map[string]string{
				"lb-policy": policy, "connect-timeout": "2s", "max-connections": "10", "max-pending": "11", "max-requests": "12",
				"outlier": "consecutive-5xx=5, consecutive-gateway-failure=3, interval=5s, base-ejection-time=10s, max-ejection-percent=50",
				"retry":   "attempts=2, on=5xx|connect-failure|unavailable, per-try-timeout=1s", "drain": "10s",
			},
		})
	}
	w.clients = startAll(t, w.address)
	w.each(t, func(t *testing.T, c client) {
		for _, policy := range policies {
			wantAnswer(t, c, policy, "one", startTime)
		}
		w.wantFresh(t, c, soon)
		if c.envoy != nil {
			if n := c.envoy.rejections(t); n != "" {
				t.Errorf("Envoy counts rejected updates: %s", n)
			}
		}
	})
	if problems := w.control.Audit(t).Server.Problems; len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
}

// An endpoint that terminates is DRAINING, and no client sends it anything new
// while another one is ready.
func TestNoClientUsesADrainingEndpoint(t *testing.T) {
	t.Parallel()
	one, _ := startEcho(t, "one")
	two, _ := startEcho(t, "two")
	w := newWorld(t, nil)
	w.service("echo", one, two)
	w.clients = startAll(t, w.address)
	loads := make(map[string]*load)
	w.each(t, func(t *testing.T, c client) {
		wantAnswer(t, c, "echo", "one", startTime)
		wantAnswer(t, c, "echo", "two", soon)
		loads[c.name] = startLoad(w.top, c, "echo")
	})
	before := w.control.Audit(t).Server.Generation
	w.manifest(t, "echo", service("echo", one, "ready: true")+"---\n"+slice("echo", "b", two, "ready: false, serving: true, terminating: true"))
	w.each(t, func(t *testing.T, c client) {
		testwait.Within(t, soon, "the change acknowledged", func() bool {
			return w.control.Audit(t).Server.Generation > before && w.node(t, c).State == "fresh"
		})
		for range 50 {
			if answer, err := c.call("echo"); err != nil || answer != "one" {
				t.Fatalf("answered by %s, %v", answer, err)
			}
		}
		loads[c.name].wantNoFailure(t)
	})
}

// A service that is only a DNS name elsewhere.
func TestEveryClientReachesAnExternalName(t *testing.T) {
	t.Parallel()
	one, _ := startEcho(t, "one")
	_, port, err := net.SplitHostPort(one)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, nil)
	w.manifest(t, "outside", fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: outside}\nspec:\n"+
		"  type: ExternalName\n  externalName: localhost\n  ports: [{name: grpc, port: %s, appProtocol: grpc}]\n", port))
	w.clients = startAll(t, w.address)
	w.each(t, func(t *testing.T, c client) { wantAnswer(t, c, "outside:"+port, "one", startTime) })
}

func service(name, address, conditions string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec:\n  ports: [{name: http, port: 8080, appProtocol: grpc}]\n---\n", name) +
		slice(name, "a", address, conditions)
}

func slice(service, name, address, conditions string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-%s, labels: {kubernetes.io/service-name: %s}}\n", service, name, service) +
		fmt.Sprintf("addressType: IPv4\nports: [{name: http, port: %s}]\nendpoints: [{addresses: [%q], conditions: {%s}}]\n", port, host, conditions)
}
