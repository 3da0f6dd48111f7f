package dataplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
)

const echo = "echo.default.svc.cluster.local:8080"

// running is a whole data plane in the test's process.
type running struct {
	*dataplane.Proxy
	t    *testing.T
	addr map[string]string
	stop context.CancelFunc
	done chan error
}

func start(t *testing.T, control string, change ...func(*dataplane.Config)) *running {
	t.Helper()
	cfg := dataplane.Config{
		NodeID: "test", XDSAddresses: []string{control}, OutboundAddress: "127.0.0.1:0", AdminAddress: "127.0.0.1:0",
		HealthAddress: "127.0.0.1:0", DrainTime: 5 * time.Second, QuietTime: 100 * time.Millisecond, FailFast: 300 * time.Millisecond,
		Registry: prometheus.NewRegistry(), Logger: hclog.New(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Debug}),
	}
	for _, f := range change {
		f(&cfg)
	}
	p, err := dataplane.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{Proxy: p, t: t, addr: p.Addresses(), stop: stop, done: make(chan error, 1)}
	go func() { r.done <- p.Run(ctx) }()
	t.Cleanup(r.end)
	return r
}

// end stops the proxy and waits; it may be called twice.
func (r *running) end() {
	r.stop()
	if err, open := <-r.done; open {
		close(r.done)
		if err != nil {
			r.t.Error(err)
		}
	}
}

func (r *running) do(method, url, host string) (int, http.Header, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Host = host
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
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

func (r *running) get(host string) (int, http.Header, string) {
	r.t.Helper()
	return r.do(http.MethodGet, "http://"+r.addr["outbound"]+"/", host)
}

func (r *running) admin(method, path string) (int, string) {
	r.t.Helper()
	status, _, body := r.do(method, "http://"+r.addr["admin"]+path, "")
	return status, body
}

func backend(t *testing.T, name string) (string, *httptest.Server) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), s
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c.(*net.TCPConn)
}

func TestServesWhatTheControlPlaneSays(t *testing.T) {
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	b, sb := backend(t, "b")
	control.set(echo, a)
	r := start(t, addr)
	testwait.Until(t, "live", func() bool {
		_, _, _ = r.get("nobody:1")
		status, _ := r.admin(http.MethodGet, "/ready")
		return status == 200
	})
	if status, _, body := r.get(echo); status != 200 || body != "a" {
		t.Fatalf("%d %q", status, body)
	}
	if status, h, _ := r.get("nobody:1"); status != 404 || !strings.Contains(h.Get("Proxy-Status"), "reason=no_such_service") {
		t.Errorf("unknown: %d %v", status, h)
	}
	control.set(echo, b)
	testwait.Until(t, "traffic moves", func() bool { _, _, body := r.get(echo); return body == "b" })
	sb.Close()
	if status, h, _ := r.get(echo); status != 503 || !strings.Contains(h.Get("Proxy-Status"), "reason=all_ejected") {
		t.Errorf("all dead: %d %v", status, h)
	}
	_, text := r.admin(http.MethodGet, "/clusters")
	for _, want := range []string{"::health_flags::/failed_outlier_check\n", "::cx_connect_fail::", "::reason::connect_refused\n", "::ejected_until::20"} {
		if !strings.Contains(text, echo+"::"+b+want[:2]) || !strings.Contains(text, want) {
			t.Errorf("/clusters lacks %q:\n%s", want, text)
		}
	}
}

func TestAdmin(t *testing.T) {
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	control.set(echo, a)
	r := start(t, addr, func(c *dataplane.Config) { c.Pprof = true })
	r.get(echo)
	r.counts("freshmesh_requests_total{cluster=\"" + echo + "\",code_class=\"2xx\",reason=\"none\"}: 1\n")
	for path, want := range map[string]string{
		"/":                     "/clusters",
		"/ready":                "LIVE",
		"/server_info":          `"state": "LIVE"`,
		"/clusters":             echo + "::" + a + "::rq_total::1\n",
		"/clusters?format=json": `"port_value"`,
		"/config_dump":          `"address": "` + a,
		"/config_dump?x":        "\"on\": [\n     \"reset\"\n    ],\n    \"attempts\": 2",
		"/listeners":            "outbound::127.0.0.1:",
		"/freshness":            `"confirmedAt"`,
		"/stats":                "freshmesh_requests_total{cluster=\"" + echo + "\",code_class=\"2xx\",reason=\"none\"}: 1\n",
		"/stats/prometheus":     "freshmesh_drain_state 0",
		"/debug/pprof/":         "goroutine",
	} {
		status, body := r.admin(http.MethodGet, path)
		if status != 200 || !strings.Contains(body, want) {
			t.Errorf("GET %s: %d, lacks %q:\n%s", path, status, want, body)
		}
		if strings.HasPrefix(body, "{") && !json.Valid([]byte(body)) {
			t.Errorf("GET %s: no JSON", path)
		}
	}
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{http.MethodPost, "/admin/reset-discovery", 200},
		{http.MethodPost, "/admin/reset-discovery?cluster=" + echo, 200},
		{http.MethodPost, "/admin/reset-discovery?cluster=other", 404},
		{http.MethodGet, "/admin/reset-discovery", 405},
		{http.MethodPost, "/logging?level=warn", 200},
		{http.MethodPost, "/logging?level=loud", 400},
		{http.MethodPost, "/healthcheck/fail", 200},
		{http.MethodGet, "/ready", 503},
		{http.MethodPost, "/healthcheck/ok", 200},
		{http.MethodGet, "/ready", 200},
		{http.MethodGet, "/nothing", 404},
		{http.MethodPost, "/drain_listeners?graceful", 200},
		{http.MethodGet, "/ready", 503},
	} {
		if status, body := r.admin(c.method, c.path); status != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, status, body, c.status)
		}
	}
	if status, _, body := r.get(echo); status != 200 {
		t.Errorf("a graceful drain refused a request: %d %s", status, body)
	}
	if status, _, body := r.do(http.MethodGet, "http://"+r.addr["health"]+"/ready", ""); status != 503 || body != "DRAINING\n" {
		t.Errorf("health address: %d %q", status, body)
	}
	if status, _, _ := r.do(http.MethodGet, "http://"+r.addr["health"]+"/clusters", ""); status != 404 {
		t.Errorf("the health address shows more than /ready: %d", status)
	}
	r.admin(http.MethodPost, "/quitquitquit")
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	close(r.done)
}

func TestBoundListeners(t *testing.T) {
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	control.set(echo, a)
	for _, asHTTP := range []bool{true, false} {
		r := start(t, addr, func(c *dataplane.Config) {
			c.Listens = []dataplane.Listen{{Address: "127.0.0.1:0", Cluster: echo, HTTP: asHTTP}}
		})
		if status, _, body := r.do(http.MethodGet, "http://"+r.addr[echo]+"/", "www.example.com"); status != 200 || body != "a" {
			t.Errorf("http=%v: %d %q", asHTTP, status, body)
		}
		r.end()
	}
}

func TestNeverReached(t *testing.T) {
	r := start(t, testaddr.Refused(t), func(c *dataplane.Config) { c.DiscoveryTimeout = 200 * time.Millisecond })
	if status, h, _ := r.get(echo); status != 503 || !strings.Contains(h.Get("Proxy-Status"), "reason=control_plane_never_reached") {
		t.Errorf("%d %v", status, h)
	}
	if status, body := r.admin(http.MethodGet, "/ready"); status != 503 || body != "PRE_INITIALIZING\n" {
		t.Errorf("%d %q", status, body)
	}
}

func TestStateDirServesAnOutage(t *testing.T) {
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	control.set(echo, a)
	dir := t.TempDir()
	keep := func(c *dataplane.Config) { c.StateDir = dir }
	r := start(t, addr, keep)
	r.get(echo)
	r.end()
	r = start(t, "127.0.0.1:1", keep)
	testwait.Until(t, "ready", func() bool { status, _ := r.admin(http.MethodGet, "/ready"); return status == 200 })
	if status, _, body := r.get(echo); status != 200 || body != "a" {
		t.Errorf("%d %q", status, body)
	}
}

func TestUnknownHostsAreLimited(t *testing.T) {
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	control.set(echo, a)
	r := start(t, addr, func(c *dataplane.Config) { c.MaxUnknown = 2 })
	if status, _, body := r.get(echo); status != 200 || body != "a" {
		t.Fatalf("%d %q", status, body)
	}
	for _, host := range []string{"one:1", "two:1"} {
		if status, h, _ := r.get(host); status != 404 {
			t.Errorf("%s: %d %s", host, status, h.Get("Proxy-Status"))
		}
	}
	if status, h, _ := r.get("three:1"); status != 503 || !strings.Contains(h.Get("Proxy-Status"), "reason=discovery_limit") {
		t.Errorf("%d %s", status, h.Get("Proxy-Status"))
	}
	if status, _, body := r.get(echo); status != 200 || body != "a" {
		t.Errorf("%d %q", status, body)
	}
	r.counts(`freshmesh_requests_total{cluster="unknown",code_class="5xx",reason="discovery_limit"}: 1`)
}

func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	taken := l.Addr().String()
	for want, change := range map[string]func(*dataplane.Config){
		"outbound address " + taken + ": address already in use": func(c *dataplane.Config) { c.OutboundAddress = taken },
		"admin address " + taken + ": address already in use":    func(c *dataplane.Config) { c.AdminAddress = taken },
		"health address " + taken + ": address already in use":   func(c *dataplane.Config) { c.HealthAddress = taken },
		"listen address " + taken + ": address already in use":   func(c *dataplane.Config) { c.Listens = []dataplane.Listen{{Address: taken, Cluster: "c"}} },
		"admin address 127.0.0.1: missing port in address":       func(c *dataplane.Config) { c.AdminAddress = "127.0.0.1" },
		"listen address 192.0.2.1:1: cannot assign requested address": func(c *dataplane.Config) {
			c.Listens = []dataplane.Listen{{Address: "192.0.2.1:1", Cluster: "c", HTTP: true}}
		},
	} {
		cfg := dataplane.Config{NodeID: "test", XDSAddresses: []string{"127.0.0.1:1"}, Registry: prometheus.NewRegistry()}
		change(&cfg)
		if _, err := dataplane.New(cfg); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// What is in flight when the proxy is told to stop is finished, and so is what
// comes while it drains.
func TestStopFinishesWork(t *testing.T) {
	control, addr := newControl(t)
	entered, release := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/slow" {
			close(entered)
			<-release
		}
		_, _ = io.WriteString(w, "done")
	}))
	defer s.Close()
	control.set(echo, s.Listener.Addr().String())
	r := start(t, addr)
	got := make(chan string, 1)
	go func() {
		_, _, body := r.do(http.MethodGet, "http://"+r.addr["outbound"]+"/slow", echo)
		got <- body
	}()
	<-entered
	r.stop()
	testwait.Until(t, "readiness fails", func() bool { status, _ := r.admin(http.MethodGet, "/ready"); return status == 503 })
	if status, _, body := r.get(echo); status != 200 || body != "done" {
		t.Errorf("while draining: %d %q", status, body)
	}
	close(release)
	if body := <-got; body != "done" {
		t.Errorf("in flight: %q", body)
	}
	r.end()
	if c, err := net.Dial("tcp", r.addr["outbound"]); err == nil {
		_ = c.Close()
		t.Error("still listening")
	}
}

func TestDrainTimeEnds(t *testing.T) {
	control, addr := newControl(t)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }))
	defer s.Close()
	control.set(echo, s.Listener.Addr().String())
	r := start(t, addr, func(c *dataplane.Config) { c.DrainTime = 200 * time.Millisecond })
	told := make(chan string, 1)
	go func() {
		_, h, _ := r.get(echo)
		told <- h.Get("Proxy-Status")
	}()
	testwait.Until(t, "in flight", func() bool { _, b := r.admin(http.MethodGet, "/clusters"); return strings.Contains(b, "rq_active::1") })
	began := time.Now()
	r.end()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("took %s", took)
	}
	if got := <-told; !strings.Contains(got, "layer=proxy; reason=draining") {
		t.Errorf("a request that never ends was told %q", got)
	}
}

func TestDrainWithoutGraceClosesListeners(t *testing.T) {
	_, addr := newControl(t)
	r := start(t, addr)
	r.admin(http.MethodPost, "/drain_listeners")
	testwait.Until(t, "outbound is closed", func() bool {
		c, err := net.Dial("tcp", r.addr["outbound"])
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	if status, _ := r.admin(http.MethodGet, "/ready"); status != 503 {
		t.Errorf("/ready %d", status)
	}
	r.end()
}

// An update never arrives and its old endpoint dies: the failed connect brings
// the new one, and the very request that met the dead endpoint is answered.
// Without the way back it is not, which shows that the test can fail.
func TestWithheldUpdate(t *testing.T) {
	for _, off := range []bool{false, true} {
		t.Run(fmt.Sprintf("refresh off=%v", off), func(t *testing.T) {
			control, addr := newControl(t)
			a, old := backend(t, "a")
			b, _ := backend(t, "b")
			control.set(echo, a)
			r := start(t, addr, func(c *dataplane.Config) {
				c.DisableRefresh = off
				c.FailFast = time.Second
			})
			if _, _, body := r.get(echo); body != "a" {
				t.Fatalf("%q", body)
			}
			control.withhold(echo, b)
			old.Close()
			status, h, body := r.get(echo)
			if off {
				if status != 503 || !strings.Contains(h.Get("Proxy-Status"), "reason=all_ejected") {
					t.Errorf("%d %q", status, body)
				}
				return
			}
			if status != 200 || body != "b" {
				t.Errorf("%d %q", status, body)
			}
		})
	}
}
