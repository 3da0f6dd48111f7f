package meshtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
	"github.com/freshmesh/freshmesh/pkg/manifest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// Control is a running control plane.
type Control struct {
	// XDS and Admin are its addresses.
	XDS, Admin string
	// Log holds what it logged.
	Log *Log
}

// Policy is the default of xds-server.
var Policy = ack.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 5 * time.Second}

// StartControl runs a control plane on a source until the test ends.
func StartControl(t testing.TB, source mesh.Source, p ack.Policy) *Control {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	c, done := RunControl(ctx, t, source, p, "127.0.0.1:0")
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("control plane: %v", err)
		}
	})
	return c
}

// RunControl runs a control plane until ctx ends; the channel gives what Run gave.
func RunControl(ctx context.Context, t testing.TB, source mesh.Source, p ack.Policy, xdsAddress string) (*Control, <-chan error) {
	t.Helper()
	xds, admin := listen(t, xdsAddress), listen(t, "127.0.0.1:0")
	c := &Control{XDS: xds.Addr().String(), Admin: admin.Addr().String(), Log: &Log{}}
	server := controlplane.New(controlplane.Config{
		Source: source, ClusterDomain: "cluster.local", Policy: p, Build: "test",
		Logger:   hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: c.Log}),
		Registry: prometheus.NewRegistry(),
	})
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, xds, admin) }()
	t.Cleanup(func() { dump(t, "control plane", c.Log) })
	return c, done
}

func listen(t testing.TB, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Audit asks for GET /audit.
func (c *Control) Audit(t testing.TB) ack.Audit {
	t.Helper()
	var a ack.Audit
	if err := json.Unmarshal([]byte(Get(t, c.Admin, "/audit")), &a); err != nil {
		t.Fatalf("audit: %v", err)
	}
	return a
}

// Proxy is a running data plane.
type Proxy struct {
	// Outbound and Admin are its addresses.
	Outbound, Admin string
	Log             *Log
}

// StartProxy runs a data plane until the test ends. edit may change its configuration.
func StartProxy(t testing.TB, xdsAddress string, edit func(*dataplane.Config)) *Proxy {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p, done := RunProxy(ctx, t, xdsAddress, edit)
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("data plane: %v", err)
		}
	})
	return p
}

// RunProxy runs a data plane until ctx ends; the channel gives what Run gave.
func RunProxy(ctx context.Context, t testing.TB, xdsAddress string, edit func(*dataplane.Config)) (*Proxy, <-chan error) {
	t.Helper()
	log := &Log{}
	c := dataplane.Config{
		NodeID: "proxy-1", XDSAddresses: []string{xdsAddress}, Namespace: "default", Version: "test",
		OutboundAddress: "127.0.0.1:0", AdminAddress: "127.0.0.1:0", DrainTime: time.Second,
		Logger:   hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: log}),
		Registry: prometheus.NewRegistry(),
	}
	if edit != nil {
		edit(&c)
	}
	proxy, err := dataplane.New(c)
	if err != nil {
		t.Fatalf("data plane: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- proxy.Run(ctx) }()
	t.Cleanup(func() { dump(t, "data plane", log) })
	return &Proxy{Outbound: proxy.Addresses()["outbound"], Admin: proxy.Addresses()["admin"], Log: log}, done
}

// Manifests is a directory of Kubernetes YAML for one mesh.
type Manifests struct {
	Dir string
	t   testing.TB
}

// NewManifests makes an empty one.
func NewManifests(t testing.TB) *Manifests {
	t.Helper()
	return &Manifests{Dir: t.TempDir(), t: t}
}

// Source is the source over the directory.
func (m *Manifests) Source() mesh.Source { return manifest.New(manifest.Config{Dir: m.Dir}) }

// Service writes a service of the default namespace with port 8080, and a
// slice with the given addresses, saved by rename as editors do.
func (m *Manifests) Service(name string, addresses ...string) {
	m.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec:\n  ports: [{name: http, port: 8080, appProtocol: http}]\n", name)
	for i, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			m.t.Fatal(err)
		}
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-%d, labels: {kubernetes.io/service-name: %s}}\n", name, i, name)
		fmt.Fprintf(&b, "addressType: IPv4\nports: [{name: http, port: %s}]\nendpoints: [{addresses: [%q], conditions: {ready: true}}]\n", port, host)
	}
	path := filepath.Join(m.Dir, name+".yaml")
	if err := os.WriteFile(path+".new", []byte(b.String()), 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		m.t.Fatal(err)
	}
}

// Get asks for a path on an HTTP address, and wants 200.
func Get(t testing.TB, address, path string) string {
	t.Helper()
	status, body := Ask(t, address, path)
	if status != http.StatusOK {
		t.Fatalf("GET %s: status %d: %s", path, status, body)
	}
	return body
}

// Ask asks for a path on an HTTP address, and gives the status and the body.
func Ask(t testing.TB, address, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return response.StatusCode, string(body)
}

// Until waits for a condition to hold, and fails the test after d.
func Until(t testing.TB, d time.Duration, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %v: not %s", d, what)
		}
	}
}
