package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// counting is a backend that answers with a status and counts.
func counting(t *testing.T, name string, code int) (*backend, *atomic.Int64) {
	t.Helper()
	n := new(atomic.Int64)
	return newBackend(t, name, func(w http.ResponseWriter, q *http.Request) {
		n.Add(1)
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("X-Own", "kept")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, name)
	}), n
}

func retryOn(attempts int, on ...string) func(*discovery.Cluster) {
	return func(c *discovery.Cluster) { c.Retry = &discovery.Retry{On: on, Attempts: attempts} }
}

// What the policy asks for and RFC 9110 allows is sent to another endpoint, nothing else.
func TestRetriesByStatus(t *testing.T) {
	for name, tt := range map[string]struct {
		on     string
		code   int
		method string
		again  bool
	}{
		"5xx":                       {"5xx", 500, http.MethodGet, true},
		"5xx and PUT":               {"5xx", 500, http.MethodPut, true},
		"5xx and POST":              {"5xx", 500, http.MethodPost, false},
		"gateway error":             {"gateway-error", 503, http.MethodGet, true},
		"500 is no gateway error":   {"gateway-error", 500, http.MethodGet, false},
		"404 is none":               {"5xx", 404, http.MethodGet, false},
		"conflict":                  {"retriable-4xx", 409, http.MethodGet, true},
		"no policy for answers":     {"reset", 503, http.MethodGet, false},
		"off":                       {"", 503, http.MethodGet, false},
		"gRPC words are not HTTP's": {"unavailable", 503, http.MethodGet, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			bad, calls := counting(t, "bad", tt.code)
			good, _ := counting(t, "good", 200)
			for i := 0; i < 8 || i < 200 && calls.Load() == 0; i++ {
				// An endpoint that comes anew has no bad name yet.
				r.put2(false, nil, good.addr)
				r.put2(false, retryOn(1, tt.on), bad.addr, good.addr)
				before := calls.Load()
				resp, err := r.do(tt.method, echo, strings.NewReader("payload"))
				if err != nil {
					t.Fatal(err)
				}
				b, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				met := calls.Load() > before
				if want := map[bool]string{true: "bad", false: "good"}[met && !tt.again]; string(b) != want || resp.Header.Get("X-Own") != "kept" {
					t.Fatalf("met the bad one: %v; answer %q, want %q", met, b, want)
				}
			}
			if calls.Load() == 0 {
				t.Error("the bad endpoint was never asked, so nothing was tested")
			}
			if n := r.counter("freshmesh_retries_total", tt.on); tt.again != (n > 0) {
				t.Errorf("%v retries counted", n)
			}
		})
	}
}

// Nobody else to ask, or attempts used up: the upstream's own answer is passed on.
func TestLastAnswerIsPassedOn(t *testing.T) {
	r := newRig(t)
	for n := 1; n <= 4; n++ {
		var addrs []string
		var all []*atomic.Int64
		for i := range n {
			b, c := counting(t, fmt.Sprint("b", i), 503)
			addrs, all = append(addrs, b.addr), append(all, c)
		}
		r.put2(false, retryOn(2, "5xx"), addrs...)
		status, h, body := r.get(echo)
		if status != 503 || h.Get("Proxy-Status") != "" || !strings.HasPrefix(body, "b") {
			t.Errorf("%d endpoints: %d %q %v", n, status, body, h)
		}
		sum := int64(0)
		for _, c := range all {
			sum += c.Load()
			if c.Load() > 1 {
				t.Errorf("%d endpoints: one was asked %d times", n, c.Load())
			}
		}
		if want := int64(min(n, 3)); sum != want {
			t.Errorf("%d endpoints: %d attempts, want %d", n, sum, want)
		}
	}
}

// statusServer fails every Check with a code; late makes the status come in
// the trailers of a response that has begun, else it is trailers-only.
type statusServer struct {
	grpc_health_v1.UnimplementedHealthServer
	code  codes.Code
	late  bool
	calls *atomic.Int64
}

func (s statusServer) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	s.calls.Add(1)
	if s.late {
		if err := grpc.SendHeader(ctx, metadata.Pairs("x-early", "yes")); err != nil {
			return nil, err
		}
	}
	if s.code != codes.OK {
		return nil, status.Error(s.code, "own words")
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func (s statusServer) start(t *testing.T) (string, *atomic.Int64) {
	t.Helper()
	s.calls = new(atomic.Int64)
	l := listen(t, "127.0.0.1:0")
	g := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(g, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return l.Addr().String(), s.calls
}

// gRPC statuses count wherever they come.
func TestRetriesByGRPCStatus(t *testing.T) {
	for _, late := range []bool{false, true} {
		for on, again := range map[string]bool{"unavailable": true, "internal": false, "5xx": false} {
			t.Run(fmt.Sprintf("%s late=%v", on, late), func(t *testing.T) {
				r := newRig(t)
				bad, calls := statusServer{code: codes.Unavailable, late: late}.start(t)
				good, _ := statusServer{late: late}.start(t)
				c := r.grpcClient(echo)
				for i := 0; i < 8 || i < 200 && calls.Load() == 0; i++ {
					r.put2(true, nil, good)
					r.put2(true, retryOn(1, on), bad, good)
					before := calls.Load()
					_, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
					met := calls.Load() > before
					want := codes.OK
					if met && !again {
						want = codes.Unavailable
					}
					if status.Code(err) != want {
						t.Fatalf("met the bad one: %v; %v, want %s", met, err, want)
					}
				}
				if calls.Load() == 0 {
					t.Error("the bad endpoint was never asked, so nothing was tested")
				}
			})
		}
	}
}

// Once a message has gone out, nothing is repeated.
func TestNoRetryAfterHeaders(t *testing.T) {
	r := newRig(t)
	b := newBackend(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = io.WriteString(w, "\x00\x00\x00\x00\x00")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "14")
	})
	other, calls := counting(t, "other", 200)
	r.put2(true, retryOn(3, "unavailable"), b.addr, other.addr)
	for range 40 {
		if got := r.ask(t.Context(), true, echo); got.grpc == "14" {
			if calls.Load() > 0 && r.counter("freshmesh_retries_total", "unavailable") > 0 {
				t.Error("it was repeated")
			}
			return
		}
		calls.Store(0)
		r.put2(true, retryOn(3, "unavailable"), other.addr)
		r.put2(true, retryOn(3, "unavailable"), b.addr, other.addr)
	}
	t.Error("the bad endpoint was never asked")
}

// An attempt that takes too long makes room for another one; the last one says so.
func TestPerTryTimeout(t *testing.T) {
	for _, grpc := range []bool{false, true} {
		r := newRig(t)
		slow := held(t)
		on := "5xx"
		if grpc {
			on = "deadline-exceeded"
		}
		policy := func(c *discovery.Cluster) {
			c.Retry = &discovery.Retry{On: []string{on}, Attempts: 1, PerTryTimeout: 150 * time.Millisecond}
		}
		r.put2(grpc, policy, slow.addr)
		began := time.Now()
		got := r.ask(t.Context(), grpc, echo)
		if !strings.Contains(got.proxyStatus, "layer=upstream; reason=per_try_timeout") || !strings.Contains(got.line, slow.addr) {
			t.Errorf("grpc=%v: %+v", grpc, got)
		}
		if took := time.Since(began); took < 150*time.Millisecond {
			t.Errorf("gave up after %s", took)
		}
		good := newBackend(t, "good", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
			_, _ = io.WriteString(w, "good")
		})
		for i := 0; i < 4 || i < 40 && r.counter("freshmesh_retries_total", "per_try_timeout") == 0; i++ {
			r.put2(grpc, policy, good.addr)
			r.put2(grpc, policy, slow.addr, good.addr)
			if got := r.ask(t.Context(), grpc, echo); got.line != "good" {
				t.Errorf("grpc=%v: %+v", grpc, got)
			}
		}
		if r.counter("freshmesh_retries_total", "per_try_timeout") == 0 {
			t.Error("no retry counted")
		}
	}
}

// The budget bounds what fails at one time, and the error says what failed.
func TestRetryBudget(t *testing.T) {
	for _, grpc := range []bool{false, true} {
		r := newRig(t)
		var addr string
		if grpc {
			addr = frameServer(t, nil, func(f *http2.Framer, h *http2.HeadersFrame, _ net.Conn) {
				_ = f.WriteRSTStream(h.StreamID, http2.ErrCodeRefusedStream)
			})
		} else {
			addr = hungUp(t, "")
		}
		r.put2(grpc, func(c *discovery.Cluster) { c.Breakers[0].Retries, c.Breakers[0].RetryPercent = 0, 0 }, addr)
		got := r.ask(t.Context(), grpc, echo)
		cause := map[bool]string{false: "reset_before_headers", true: "stream_refused"}[grpc]
		if !strings.Contains(got.proxyStatus, "layer=balancing; reason=breaker_retries") || !strings.Contains(got.line, cause) || !strings.Contains(got.line, addr) {
			t.Errorf("grpc=%v: %+v", grpc, got)
		}
		r.counted("breaker_retries", 1)
	}
}

// A refused stream was not worked on: another endpoint gets it, though it is a POST.
func TestRefusedStreamGoesElsewhere(t *testing.T) {
	r := newRig(t)
	refuses := frameServer(t, nil, func(f *http2.Framer, h *http2.HeadersFrame, _ net.Conn) {
		_ = f.WriteRSTStream(h.StreamID, http2.ErrCodeRefusedStream)
	})
	good, calls := statusServer{}.start(t)
	c := r.grpcClient(echo)
	for range 24 {
		r.put2(true, nil, good)
		r.put2(true, nil, refuses, good)
		if _, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if calls.Load() != 24 || r.counter("freshmesh_retries_total", "stream_refused") == 0 {
		t.Errorf("%d calls served, %v retries", calls.Load(), r.counter("freshmesh_retries_total", "stream_refused"))
	}
}

// A stream beyond the last one that a GOAWAY names was not worked on, and those up to it were.
func TestGoAwayBeyondLastStream(t *testing.T) {
	for _, beyond := range []bool{false, true} {
		r := newRig(t)
		leaves := frameServer(t, nil, func(f *http2.Framer, h *http2.HeadersFrame, c net.Conn) {
			last := h.StreamID
			if beyond {
				last--
			}
			_ = f.WriteGoAway(last, http2.ErrCodeNo, nil)
			if !beyond {
				_ = c.Close()
			}
		})
		good, _ := statusServer{}.start(t)
		c := r.grpcClient(echo)
		failed := 0
		for range 24 {
			r.put2(true, nil, good)
			r.put2(true, nil, leaves, good)
			if _, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
				failed++
			}
		}
		if beyond != (failed == 0) {
			t.Errorf("beyond=%v: %d of 24 failed", beyond, failed)
		}
		if n := r.counter("freshmesh_retries_total", "stream_refused"); beyond != (n > 0) {
			t.Errorf("beyond=%v: %v retries for stream_refused", beyond, n)
		}
	}
}

// A body of up to 64 KiB is kept for another attempt, a longer one is not.
func TestReplayOfBodies(t *testing.T) {
	for size, again := range map[int]bool{64 << 10: true, 64<<10 + 1: false} {
		r := newRig(t)
		bad, calls := counting(t, "bad", 503)
		good := newBackend(t, "good", func(w http.ResponseWriter, q *http.Request) {
			n, _ := io.Copy(io.Discard, q.Body)
			_, _ = fmt.Fprint(w, "good", n)
		})
		for i := 0; i < 8 || i < 200 && calls.Load() == 0; i++ {
			r.put2(false, nil, good.addr)
			r.put2(false, retryOn(1, "5xx"), bad.addr, good.addr)
			before := calls.Load()
			resp, err := r.do(http.MethodPut, echo, strings.NewReader(strings.Repeat("x", size)))
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			met := calls.Load() > before
			want := fmt.Sprint("good", size)
			if met && !again {
				want = "bad"
			}
			if string(b) != want {
				t.Fatalf("%d bytes, met the bad one: %v; %q, want %q", size, met, b, want)
			}
		}
		if calls.Load() == 0 {
			t.Error("the bad endpoint was never asked")
		}
	}
}
