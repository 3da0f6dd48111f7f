package interop

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/static"
)

// withStatic starts a control plane with --static-resources, and gives the directory.
func withStatic(t *testing.T) (w *world, dir string) {
	t.Helper()
	dir = t.TempDir()
	return newWorld(t, func(c *controlplane.Config) {
		c.Static = static.New(static.Config{Dir: dir})
	}), dir
}

func save(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "."+name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "."+name), filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// A static resource that no client takes: /audit tells which node refuses what,
// and why, and nobody stops using what was there.
func TestBadStaticResource(t *testing.T) {
	t.Parallel()
	one, _ := startEcho(t, "one")
	_, port, err := net.SplitHostPort(one)
	if err != nil {
		t.Fatal(err)
	}
	w, dir := withStatic(t)
	w.service("echo", one)
	w.clients = startAll(t, w.address)
	w.each(t, func(t *testing.T, c client) {
		wantAnswer(t, c, "echo", "one", startTime)
		w.wantFresh(t, c, soon)
	})
	name := interoptest.ClusterName("echo")
	endpoint := fmt.Sprintf("endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %s}}}", port)
	save(t, dir, "bad.yaml", "\"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment\ncluster_name: "+name+
		"\nendpoints: [{locality: {}, load_balancing_weight: 1, lb_endpoints: [{"+endpoint+"}, {"+endpoint+", load_balancing_weight: 0}]}]\n")
	w.each(t, func(t *testing.T, c client) {
		testwait.Within(t, soon, "rejected", func() bool { return w.node(t, c).State == ack.Rejected })
		n := w.node(t, c)
		refused := nack(n, mesh.TypeEndpoint)
		if refused == nil || !strings.Contains(refused.Message, name) && c.name != "grpc-node" || len(refused.Resources) != 1 || refused.Resources[0] != name {
			t.Errorf("refused: %+v", refused)
		}
		if refused != nil && n.Reason != refused.Message && !strings.Contains(n.Reason, refused.Message) {
			t.Errorf("the node's reason %q is not the client's %q", n.Reason, refused.Message)
		}
		wantAnswer(t, c, "echo", "one", soon)
	})
	if err := os.Remove(filepath.Join(dir, "bad.yaml")); err != nil {
		t.Fatal(err)
	}
	w.each(t, func(t *testing.T, c client) {
		w.wantFresh(t, c, soon)
		wantAnswer(t, c, "echo", "one", soon)
	})
}

// Types that freshmesh itself knows nothing of: Envoy loads a filter over ECDS and
// a certificate authority over SDS, on the same stream, and they are in the audit.
func TestEnvoyLoadsOtherTypes(t *testing.T) {
	t.Parallel()
	for _, begin := range bothEnvoys {
		loadsOtherTypes(t, begin)
	}
}

func loadsOtherTypes(t *testing.T, begin starter) {
	t.Helper()
	w, dir := withStatic(t)
	save(t, dir, "extension.yaml", stamp("first"))
	save(t, dir, "secret.yaml", `"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
name: trust
validation_context: {trust_chain_verification: ACCEPT_UNTRUSTED}
`)
	address := testaddr.Free(t, "127.0.0.1")
	save(t, dir, "listener.yaml", extraListener(t, address))
	save(t, dir, "cluster.yaml", `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: partner
type: STATIC
connect_timeout: 1s
load_assignment: {cluster_name: partner, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 9}}}}]}]}
transport_socket:
  name: envoy.transport_sockets.tls
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    common_tls_context: {validation_context_sds_secret_config: {name: trust, sds_config: {ads: {}, resource_api_version: V3}}}
`)
	w.clients = []client{begin(t, w.address)}
	stamped := func(want string) func() bool {
		return func() bool { return header(t, address, "x-stamp") == want }
	}
	w.each(t, func(t *testing.T, c client) {
		testwait.Within(t, startTime, "stamped by the first filter", stamped("first"))
		testwait.Within(t, soon, "fresh", func() bool { return w.node(t, c).State == ack.Fresh })
		kinds := make(map[string]ack.State)
		for _, s := range w.node(t, c).Types {
			kinds[s.Type] = s.State
		}
		for _, kind := range []string{
			"type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
			"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
		} {
			if kinds[kind] != ack.Fresh {
				t.Errorf("%s is %q in the audit: %v", kind, kinds[kind], kinds)
			}
		}
	})
	save(t, dir, "extension.yaml", stamp("second"))
	w.each(t, func(t *testing.T, c client) {
		testwait.Within(t, soon, "stamped by the second filter", stamped("second"))
		if n := c.envoy.rejections(t); n != "" {
			t.Errorf("Envoy counts rejected updates: %s", n)
		}
	})
}

// extraListener answers 200 by itself, through a filter that comes over ECDS.
func extraListener(t *testing.T, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`"@type": type.googleapis.com/envoy.config.listener.v3.Listener
name: extra
address: {socket_address: {address: %s, port_value: %s}}
filter_chains:
- filters:
  - name: envoy.filters.network.http_connection_manager
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      stat_prefix: extra
      route_config:
        virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: ""}, direct_response: {status: 200}}]}]
      http_filters:
      - name: stamp
        config_discovery:
          config_source: {ads: {}, resource_api_version: V3}
          type_urls: [type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation]
      - name: envoy.filters.http.router
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
`, host, port)
}

// stamp is a filter that adds a header to each response.
func stamp(value string) string {
	return `"@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig
name: stamp
typed_config:
  "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
  mutations: {response_mutations: [{append: {header: {key: x-stamp, value: ` + value + `}}}]}
`
}

// header gives a header of the response of an HTTP server; "" while there is none.
func header(t *testing.T, address, name string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	return response.Header.Get(name)
}
