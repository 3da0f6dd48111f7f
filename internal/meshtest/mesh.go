package meshtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testaddr"
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

// StartControl runs a control plane on a source until the test ends. Each edit may change its configuration.
func StartControl(t testing.TB, source mesh.Source, p ack.Policy, edits ...func(*controlplane.Config)) *Control {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	c, done := RunControl(ctx, t, source, p, "127.0.0.1:0", edits...)
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("control plane: %v", err)
		}
	})
	return c
}

// RunControl runs a control plane until ctx ends; the channel gives what Run
// gave. Each edit may change its configuration.
func RunControl(
	ctx context.Context, t testing.TB, source mesh.Source, p ack.Policy, xdsAddress string, edits ...func(*controlplane.Config),
) (*Control, <-chan error) {
	t.Helper()
	xds, admin := listen(ctx, t, xdsAddress), listen(ctx, t, "127.0.0.1:0")
	c := &Control{XDS: xds.Addr().String(), Admin: admin.Addr().String(), Log: &Log{}}
	config := controlplane.Config{
		Source: source, ClusterDomain: "cluster.local", Policy: p, Build: "test",
		Logger:   hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: c.Log}),
		Registry: prometheus.NewRegistry(),
	}
	for _, edit := range edits {
		edit(&config)
	}
	server := controlplane.New(config)
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, xds, admin) }()
	t.Cleanup(func() { dump(t, "control plane", c.Log) })
	return c, done
}

func listen(ctx context.Context, t testing.TB, address string) net.Listener {
	t.Helper()
	l, err := testaddr.Listen(ctx, address)
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

// Metric gives the value of one series of /metrics, named as there, labels
// included: `freshmesh_refresh_total{verdict="current"}`. A series that is not
// there fails the test.
func (c *Control) Metric(t testing.TB, series string) float64 {
	t.Helper()
	for line := range strings.Lines(Get(t, c.Admin, "/metrics")) {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatalf("metric %s: %v", series, err)
			}
			return v
		}
	}
	t.Fatalf("no metric %s", series)
	return 0
}

// Proxy is a running data plane.
type Proxy struct {
	// Outbound and Admin are its addresses; Health is "" unless its configuration asks for one.
	Outbound, Admin, Health string
	// Listens are the addresses that lead to one cluster, by its name.
	Listens map[string]string
	Log     *Log
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
	at := proxy.Addresses()
	return &Proxy{Outbound: at["outbound"], Admin: at["admin"], Health: at["health"], Listens: at, Log: log}, done
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

// Service is a service of the default namespace with port 8080.
type Service struct {
	Name string
	// AppProtocol is the port's; "" means http.
	AppProtocol string
	// Annotations are freshmesh.dev/KEY: VALUE.
	Annotations map[string]string
	// Addresses are those of its ready endpoints, IP:PORT, each in a slice of its own.
	Addresses []string
}

// Service writes an HTTP service with the given endpoints.
func (m *Manifests) Service(name string, addresses ...string) {
	m.t.Helper()
	m.Put(Service{Name: name, Addresses: addresses})
}

// Put writes a service and its slices, saved by rename as editors do.
func (m *Manifests) Put(s Service) {
	m.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\n  annotations: {", s.Name)
	for key, value := range s.Annotations {
		fmt.Fprintf(&b, "freshmesh.dev/%s: %q, ", key, value)
	}
	fmt.Fprintf(&b, "}\nspec:\n  ports: [{name: http, port: 8080, appProtocol: %s}]\n", cmp.Or(s.AppProtocol, "http"))
	for i, address := range s.Addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			m.t.Fatal(err)
		}
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-%d, labels: {kubernetes.io/service-name: %s}}\n", s.Name, i, s.Name)
		fmt.Fprintf(&b, "addressType: IPv4\nports: [{name: http, port: %s}]\nendpoints: [{addresses: [%q], conditions: {ready: true}}]\n", port, host)
	}
	path := m.path(s.Name)
	if err := os.WriteFile(path+".new", []byte(b.String()), 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		m.t.Fatal(err)
	}
}

// Remove deletes a service and its slices.
func (m *Manifests) Remove(name string) {
	m.t.Helper()
	if err := os.Remove(m.path(name)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *Manifests) path(name string) string { return filepath.Join(m.Dir, name+".yaml") }

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
	return do(t, http.MethodGet, address, path)
}

// Post posts nothing to a path on an HTTP address, and wants 200.
func Post(t testing.TB, address, path string) {
	t.Helper()
	if status, body := do(t, http.MethodPost, address, path); status != http.StatusOK {
		t.Fatalf("POST %s: status %d: %s", path, status, body)
	}
}

func do(t testing.TB, method, address, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response.StatusCode, string(body)
}
