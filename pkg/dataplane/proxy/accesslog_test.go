package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxy"
)

// logBuffer is a writer that a test may look into.
type logBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// has tells whether a text was written.
func (l *logBuffer) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

// line is an access log line as a reader sees it.
type line struct {
	Time                                      time.Time
	Client, Protocol, Method, Authority, Path string
	Cluster, GRPCStatus, Reason, Layer, Error string
	Status                                    int
	Seconds, FirstByteSeconds                 float64
	BytesReceived, BytesSent                  int64
	Attempts                                  []struct {
		Endpoint, Reason string
		Status           int
		Seconds          float64
	}
	TraceParent string
}

func (l *logBuffer) lines(t *testing.T) []line {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []line
	for text := range strings.Lines(l.b.String()) {
		var n line
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&n); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		all = append(all, n)
	}
	return all
}

// logTo makes the rig's listeners log to out.
func (r *rig) logTo(out io.Writer) {
	r.t.Helper()
	l, err := proxy.NewAccessLog(out, r.reg)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
	r.cfg.AccessLog = l
	r.again()
}

// next gives the newest line when there are n.
func (l *logBuffer) next(t *testing.T, n int) line {
	t.Helper()
	testwait.Until(t, "a line is written", func() bool { return len(l.lines(t)) == n })
	return l.lines(t)[n-1]
}

func TestAccessLog(t *testing.T) {
	r := newRig(t)
	var out logBuffer
	r.logTo(&out)
	good := newBackend(t, "a", func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		_, _ = io.WriteString(w, "12345")
	})
	dead := testaddr.Refused(t)
	r.put(good.addr)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r.ask(t.Context(), false, echo, func(q *http.Request) {
		q.Method, q.Body, q.ContentLength = http.MethodPut, io.NopCloser(strings.NewReader("123")), 3
		q.URL.Path, q.URL.RawQuery = "/x", "secret=1"
		q.Header.Set("Traceparent", parent)
	})
	n := out.next(t, 1)
	if n.Method != "PUT" || n.Authority != echo || n.Path != "/x" || n.Cluster != echo || n.Status != 200 || n.Reason != "none" || n.Error != "" ||
		n.BytesReceived != 3 || n.BytesSent != 5 || n.Protocol != "HTTP/1.1" || n.TraceParent != parent || n.Client == "" ||
		n.Seconds <= 0 || n.FirstByteSeconds <= 0 || n.FirstByteSeconds > n.Seconds || time.Since(n.Time) > time.Minute {
		t.Errorf("%+v", n)
	}
	if len(n.Attempts) != 1 || n.Attempts[0].Endpoint != good.addr || n.Attempts[0].Status != 200 || n.Attempts[0].Reason != "none" {
		t.Errorf("attempts %+v", n.Attempts)
	}
	r.put(dead)
	r.ask(t.Context(), false, echo)
	n = out.next(t, 2)
	if n.Status != 503 || n.Reason != "all_ejected" || n.Layer != "balancing" || !strings.Contains(n.Error, "last: connect_refused "+dead) ||
		len(n.Attempts) == 0 || n.Attempts[0].Endpoint != dead || n.Attempts[0].Reason != "connect_refused" {
		t.Errorf("%+v", n)
	}
	if strings.Contains(out.b.String(), "secret") {
		t.Error("the query was logged")
	}
}

// An attempt that failed and the one that did not; gRPC's own status; and a stream that is cut.
func TestAccessLogOfCalls(t *testing.T) {
	r := newRig(t)
	var out logBuffer
	r.logTo(&out)
	bad, good := testaddr.Refused(t), newBackend(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "5")
	})
	n := 0
	for range 40 {
		r.put2(true, nil, good.addr)
		r.put2(true, nil, bad, good.addr)
		n++
		r.ask(t.Context(), true, echo)
		got := out.next(t, n)
		if got.Status != 200 || got.GRPCStatus != "5" || got.Reason != "none" || got.Protocol != "HTTP/2.0" {
			t.Fatalf("%+v", got)
		}
		if len(got.Attempts) == 2 {
			if a := got.Attempts; a[0].Endpoint != bad || a[0].Reason != "connect_refused" || a[1].Endpoint != good.addr || a[1].Reason != "none" {
				t.Errorf("attempts %+v", a)
			}
			break
		}
	}
	b := streaming(t)
	r.put2(true, nil, b.addr)
	r.interrupted(true, b.kill)
	if got := out.next(t, n+1); got.Reason != "reset_mid_body" || got.GRPCStatus != "14" || got.BytesSent != 4 || !strings.Contains(got.Error, b.addr) {
		t.Errorf("%+v", got)
	}
}

func TestAccessLogOfTunnels(t *testing.T) {
	r := newRig(t)
	var out logBuffer
	r.logTo(&out)
	b := acceptor(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	r.put(b)
	c := r.dial(r.serveTCP(echo))
	_, _ = io.WriteString(c, "hello")
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
		t.Fatalf("%q %v", got, err)
	}
	n := out.next(t, 1)
	if n.Protocol != "tcp" || n.Cluster != echo || n.BytesReceived != 5 || n.BytesSent != 5 || n.Reason != "none" || len(n.Attempts) != 1 || n.Attempts[0].Endpoint != b {
		t.Errorf("%+v", n)
	}
	r.put(lineEcho(t).addr)
	s := r.socket()
	if _, err := say(s, "hello"); err != nil {
		t.Fatal(err)
	}
	// Others use the memory that its head was in.
	const others = 50
	for range others {
		r.get("nobody.at.all.with-a-name-that-is-longer:8080")
	}
	out.next(t, 1+others)
	r.tracker.Abort()
	if n := out.next(t, 2+others); n.Status != 101 || n.Method != "GET" || n.Authority != "echo:8080" || n.Path != "/" || n.Reason != "draining" || n.BytesReceived != 6 || n.BytesSent != 6 {
		t.Errorf("%+v", n)
	}
}

// stuck is a writer that takes nothing until it is released.
type stuck struct{ release chan struct{} }

func (s stuck) Write(p []byte) (int, error) { <-s.release; return len(p), nil }

// A log that nobody reads stops no request; what it loses is counted.
func TestAccessLogNeverBlocks(t *testing.T) {
	r := newRig(t)
	s := stuck{make(chan struct{})}
	defer close(s.release)
	r.logTo(s)
	r.put(newBackend(t, "a", nil).addr)
	c := &client{addr: r.addr}
	defer c.close()
	for i := 0; r.single("freshmesh_access_log_dropped_total") == 0; i++ {
		for range 500 {
			if status, _, err := c.get(); status != 200 || err != nil {
				t.Fatal(status, err)
			}
		}
		if i > 40 {
			t.Fatal("nothing was dropped")
		}
	}
}

// single is the value of a counter without labels.
func (r *rig) single(name string) float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

// W3C trace context belongs to client and upstream: nothing of it is touched (Trace Context section 3.2).
func TestTraceContextPasses(t *testing.T) {
	fields := map[string][]string{
		"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"Tracestate":  {"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "vendor=x"},
		"Baggage":     {"userId=alice;p=1,  k=v"},
	}
	for _, grpc := range []bool{false, true} {
		r := newRig(t)
		got := make(chan http.Header, 1)
		r.putCluster(&discovery.Cluster{HTTP2: grpc}, newBackend(t, "a", func(w http.ResponseWriter, q *http.Request) {
			got <- q.Header
			w.Header()["Traceresponse"] = []string{"00-x"}
		}).addr)
		r.ask(t.Context(), grpc, echo, func(q *http.Request) {
			maps.Copy(q.Header, fields)
		})
		h := <-got
		for k, v := range fields {
			if strings.Join(h[k], "|") != strings.Join(v, "|") {
				t.Errorf("grpc=%v: %s is %q, want %q", grpc, k, h[k], v)
			}
		}
	}
	r := newRig(t)
	got := make(chan http.Header, 1)
	r.put(newBackend(t, "a", func(_ http.ResponseWriter, q *http.Request) { got <- q.Header }).addr)
	r.ask(t.Context(), false, echo)
	for k := range <-got {
		if strings.HasPrefix(k, "Trace") || k == "Baggage" {
			t.Errorf("%s was made up", k)
		}
	}
}

// A request that its client gave up while it waited for an endpoint has a line like any other.
func TestAccessLogOfWhatWaited(t *testing.T) {
	r := newRig(t)
	var out logBuffer
	r.logTo(&out)
	r.put2(true, nil)
	tr := transport(true)
	defer tr.CloseIdleConnections()
	for i := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/wait/%d", r.addr, i), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		q.Host = echo
		done := make(chan error, 1)
		go func() {
			resp, err := tr.RoundTrip(q)
			if err == nil {
				_ = resp.Body.Close()
			}
			done <- err
		}()
		testwait.Until(t, "it waits", func() bool { return r.tracker.Active() == 1 })
		cancel()
		if err := <-done; err == nil {
			t.Error("an answer")
		}
		if got := out.next(t, i+1); got.Path != fmt.Sprintf("/wait/%d", i) || got.Method != http.MethodGet || got.Reason != "client_gone" {
			t.Errorf("%+v", got)
		}
	}
}
