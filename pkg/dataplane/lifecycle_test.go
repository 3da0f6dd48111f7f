package dataplane_test

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
)

// With grace the listeners live for the drain time, and the process goes on.
func TestGracefulDrainClosesListenersInTheEnd(t *testing.T) {
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	control.set(echo, a)
	r := start(t, addr, func(c *dataplane.Config) { c.DrainTime = time.Second })
	r.get(echo)
	began := time.Now()
	r.admin(http.MethodPost, "/drain_listeners?graceful")
	if status, _, _ := r.get(echo); status != 200 {
		t.Errorf("refused at once: %d", status)
	}
	if _, body := r.admin(http.MethodGet, "/stats"); !strings.Contains(body, "freshmesh_drain_state: 1\n") {
		t.Error("freshmesh_drain_state is not 1")
	}
	testwait.Until(t, "outbound is closed", func() bool {
		c, err := net.Dial("tcp", r.addr["outbound"])
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("closed after %s", took)
	}
	if status, _ := r.admin(http.MethodGet, "/ready"); status != 503 {
		t.Errorf("/ready %d", status)
	}
}

// The readiness that was made to fail is not a drain.
func TestHealthcheckFail(t *testing.T) {
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	control.set(echo, a)
	r := start(t, addr)
	r.get(echo)
	r.admin(http.MethodPost, "/healthcheck/fail")
	if status, body := r.admin(http.MethodGet, "/ready"); status != 503 || body != "HEALTHCHECK_FAILED\n" {
		t.Errorf("%d %q", status, body)
	}
	if status, h, _ := r.get(echo); status != 200 || h.Get("Connection") != "" {
		t.Errorf("%d %v", status, h)
	}
	if _, body := r.admin(http.MethodGet, "/stats"); !strings.Contains(body, "freshmesh_drain_state: 0\n") {
		t.Error("freshmesh_drain_state is not 0")
	}
	r.admin(http.MethodPost, "/healthcheck/ok")
	if status, _ := r.admin(http.MethodGet, "/ready"); status != 200 {
		t.Errorf("%d", status)
	}
}

// An idle client does not keep a proxy from its exit, and a stream only until the drain time.
func TestExitWhenIdle(t *testing.T) {
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	control.set(echo, a)
	r := start(t, addr, func(c *dataplane.Config) { c.DrainTime = time.Minute })
	keep := &http.Transport{}
	defer keep.CloseIdleConnections()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.addr["outbound"]+"/", nil)
	req.Host = echo
	resp, err := keep.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	began := time.Now()
	r.end()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
}

type output struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) has(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Contains(o.b.String(), text)
}

// The level that is asked for holds for every part of the proxy.
func TestLoggingLevel(t *testing.T) {
	_, addr := newControl(t)
	var out output
	r := start(t, addr, func(c *dataplane.Config) {
		c.Logger = hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Info})
	})
	r.get("nobody:1")
	if out.has("request failed") {
		t.Error("debug lines at level info")
	}
	r.admin(http.MethodPost, "/logging?level=debug")
	r.get("nobody:1")
	if !out.has("reason=no_such_service") || !out.has("layer=discovery") {
		t.Errorf("no debug line: %s", out.b.String())
	}
}

func TestAccessLogFile(t *testing.T) {
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	control.set(echo, a)
	file := filepath.Join(t.TempDir(), "access.log")
	r := start(t, addr, func(c *dataplane.Config) { c.AccessLog = file })
	r.get(echo)
	r.get("nobody:1")
	r.end()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], a) || !strings.Contains(lines[1], `"reason":"no_such_service"`) {
		t.Errorf("%s", b)
	}
}
