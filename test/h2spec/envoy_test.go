package h2spec

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"testing"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
)

// startEnvoy is Envoy with its defaults, before an endpoint. The codec is HTTP2,
// or AUTO, which serves HTTP/1.1 as well.
func startEnvoy(t *testing.T, codec string, endpoint netip.AddrPort) netip.AddrPort {
	t.Helper()
	at := netip.MustParseAddrPort(testaddr.Free(t, "127.0.0.1"))
	config := fmt.Sprintf(envoyConfig, at.Port(), codec, endpoint.Port())
	interoptest.Start(t, exec.Command(interoptest.EnvoyBinary(t), "--config-path", interoptest.WriteFile(t, "envoy.yaml", []byte(config)),
		"--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"))
	testwait.Within(t, interoptest.StartTime, "Envoy up", func() bool {
		c, err := net.Dial("tcp", at.String())
		return err == nil && c.Close() == nil
	})
	return at
}

const envoyConfig = `
static_resources:
  listeners:
  - name: in
    address: {socket_address: {address: 127.0.0.1, port_value: %d}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          codec_type: %s
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: "/"}
                route: {cluster: out}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: out
    type: STATIC
    connect_timeout: 5s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: out
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}
`
