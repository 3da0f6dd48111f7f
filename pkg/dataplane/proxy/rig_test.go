package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxy"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const echo = "echo.default.svc.cluster.local:8080"

// fakeDiscovery holds clusters and hands them to the set, as the real client does.
type fakeDiscovery struct {
	set *endpoints.Set

	mu         sync.Mutex // guards all below
	clusters   map[string]*discovery.Cluster
	silent     bool
	err        error
	distrusted map[string]int
	load       map[mesh.EndpointKey]discovery.Load
	onDistrust func(cluster string)
	// defect is what Cluster panics with, or Count if countDefect; nil for nothing.
	defect      any
	countDefect bool
}

func (f *fakeDiscovery) Cluster(ctx context.Context, name string) (*discovery.Cluster, error) {
	f.mu.Lock()
	c, silent, err, defect := f.clusters[name], f.silent, f.err, f.defect
	f.mu.Unlock()
	if defect != nil && !f.countDefect {
		panic(defect)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	if silent {
		<-ctx.Done()
		return nil, fmt.Errorf("cluster %s: %w", name, discovery.ErrDiscoveryPending)
	}
	if c == nil {
		return nil, fmt.Errorf("cluster %s: %w", name, discovery.ErrUnknownService)
	}
	return c, nil
}

// say makes it silent, or fail with err.
func (f *fakeDiscovery) say(silent bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent, f.err = silent, err
}

// fail makes it panic; nil ends that.
func (f *fakeDiscovery) fail(with any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.defect = with
}

func (f *fakeDiscovery) Distrust(cluster string) {
	f.mu.Lock()
	f.distrusted[cluster]++
	hook := f.onDistrust
	f.mu.Unlock()
	if hook != nil {
		hook(cluster)
	}
}

func (f *fakeDiscovery) distrusts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.distrusted[echo]
}

func (f *fakeDiscovery) Count(_ string, key mesh.EndpointKey, l discovery.Load) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.defect != nil && f.countDefect {
		panic(f.defect)
	}
	sum := f.load[key]
	sum.Issued += l.Issued
	sum.Succeeded += l.Succeeded
	sum.Failed += l.Failed
	sum.ConnectFailed += l.ConnectFailed
	f.load[key] = sum
}

// rig is a proxy over real sockets with a fake discovery.
type rig struct {
	t       testing.TB
	disc    *fakeDiscovery
	set     *endpoints.Set
	tracker *proxy.Tracker
	cfg     proxy.Config
	reg     *prometheus.Registry
	// addr is the outbound listener.
	addr string
}

func newRig(t testing.TB, change ...func(*endpoints.Config)) *rig {
	t.Helper()
	r := &rig{t: t, reg: prometheus.NewRegistry()}
	r.disc = &fakeDiscovery{
		clusters: map[string]*discovery.Cluster{}, distrusted: map[string]int{}, load: map[mesh.EndpointKey]discovery.Load{},
	}
	metrics, err := proxy.NewMetrics(r.reg)
	if err != nil {
		t.Fatal(err)
	}
	ec := endpoints.Config{Reporter: r.disc, Ejected: metrics.Ejected, Panicked: metrics.Panicked, FailFast: 500 * time.Millisecond, Drain: 2 * time.Second}
	for _, f := range change {
		f(&ec)
	}
	r.set = endpoints.New(ec)
	r.disc.set = r.set
	r.tracker = proxy.NewTracker(metrics)
	r.cfg = proxy.Config{
		Discovery: r.disc, Endpoints: r.set, Names: proxy.Names{Namespace: "default", Domain: "cluster.local"},
		Metrics: metrics, Tracker: r.tracker, Logger: hclog.NewNullLogger(), DiscoveryTimeout: 200 * time.Millisecond,
	}
	r.addr = r.serveHTTP(r.http())
	t.Cleanup(r.set.Close)
	return r
}

func (r *rig) http() *proxy.HTTP { return &proxy.HTTP{Config: r.cfg} }

func (r *rig) serveHTTP(h *proxy.HTTP) string {
	r.t.Helper()
	return r.serve(h.Serve)
}

func (r *rig) serve(serve func(context.Context, net.Listener) error) string {
	r.t.Helper()
	l := listen(r.t, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l) }()
	r.t.Cleanup(func() {
		cancel()
		_ = l.Close()
		r.tracker.Abort()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
	return l.Addr().String()
}

func (r *rig) serveTCP(cluster string) string {
	r.t.Helper()
	return r.serve((&proxy.TCP{Config: r.cfg, Cluster: cluster}).Serve)
}

// put sets the endpoints of the cluster echo.
func (r *rig) put(addrs ...string) { r.putCluster(&discovery.Cluster{}, addrs...) }

func (r *rig) putCluster(c *discovery.Cluster, addrs ...string) {
	r.t.Helper()
	r.putNamed(echo, c, addrs...)
}

func (r *rig) putNamed(name string, c *discovery.Cluster, addrs ...string) {
	r.t.Helper()
	c.Name, c.ServiceName = name, name
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = time.Second
	}
	for _, a := range addrs {
		c.Endpoints = append(c.Endpoints, mesh.Endpoint{EndpointKey: mesh.EndpointKey{Address: netip.MustParseAddrPort(a)}, Weight: 1})
	}
	if err := r.set.Apply(c); err != nil {
		r.t.Fatal(err)
	}
	r.disc.mu.Lock()
	r.disc.clusters[name] = c
	r.disc.mu.Unlock()
}

func listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func serve(t testing.TB, s *http.Server) string {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	serveOn(t, s, l)
	return l.Addr().String()
}

func serveOn(t testing.TB, s *http.Server, l net.Listener) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
}

// backend is an HTTP server that can be killed and come back at its address.
type backend struct {
	t    testing.TB
	name string
	addr string
	h    http.Handler
	// streams is how many a connection carries; 0 is Go's default.
	streams int
	srv     *http.Server
	done    chan struct{}
}

func newBackend(t testing.TB, name string, h http.HandlerFunc) *backend {
	t.Helper()
	if h == nil {
		h = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }
	}
	b := &backend{t: t, name: name, h: h, addr: testaddr.Free(t, "127.0.0.1")}
	b.start()
	t.Cleanup(b.kill)
	return b
}

func (b *backend) start() {
	b.t.Helper()
	l := listen(b.t, b.addr)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	b.srv = &http.Server{Handler: b.h, Protocols: &protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: b.streams}}
	b.done = make(chan struct{})
	go func(srv *http.Server, done chan struct{}) {
		defer close(done)
		_ = srv.Serve(l)
	}(b.srv, b.done)
}

// kill closes listener and connections at once, as a killed process would.
func (b *backend) kill() {
	_ = b.srv.Close()
	<-b.done
	// What was being accepted meanwhile outlives the first Close.
	_ = b.srv.Close()
}

// get makes one request on a connection of its own that nothing retries.
func (r *rig) get(authority string) (int, http.Header, string) {
	r.t.Helper()
	resp, err := r.do(http.MethodGet, authority, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func (r *rig) do(method, authority string, body io.Reader) (*http.Response, error) {
	tr := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.addr+"/", body)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Host = authority
	return tr.RoundTrip(req)
}
