package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxy"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// told is what a client heard of a failure.
type told struct {
	status                  int
	proxyStatus, line, grpc string
	brokenOff               bool
}

// ask makes one request in its own connection: a GET over HTTP/1.1, or a gRPC
// call over HTTP/2. Nothing retries it.
func (r *rig) ask(ctx context.Context, grpc bool, host string, change ...func(*http.Request)) told {
	r.t.Helper()
	return r.hear(ctx, grpc, host, io.ReadAll, change...)
}

// hear is ask with read to take the body.
func (r *rig) hear(ctx context.Context, grpc bool, host string, read func(io.Reader) ([]byte, error), change ...func(*http.Request)) told {
	r.t.Helper()
	tr := transport(grpc)
	defer tr.CloseIdleConnections()
	cc, err := tr.NewClientConn(context.WithoutCancel(ctx), "http", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.addr+"/s/m", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	q.Host = host
	if grpc {
		q.Method = http.MethodPost
		q.Header.Set("Content-Type", "application/grpc")
		q.Header.Set("Te", "trailers")
	}
	for _, f := range change {
		f(q)
	}
	resp, err := cc.RoundTrip(q)
	if err != nil {
		return told{brokenOff: true, line: err.Error()}
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := read(resp.Body)
	h := resp.Header
	if resp.Trailer.Get("Grpc-Status") != "" {
		h = resp.Trailer
	}
	return told{
		status: resp.StatusCode, proxyStatus: h.Get("Proxy-Status"), line: string(b) + h.Get("Grpc-Message"),
		grpc: h.Get("Grpc-Status"), brokenOff: err != nil,
	}
}

// frameServer is an HTTP/2 server by hand: serve gets each request's stream after the settings.
func frameServer(t testing.TB, settings []http2.Setting, serve func(*http2.Framer, *http2.HeadersFrame, net.Conn)) string {
	t.Helper()
	return acceptor(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(c, c)
		_ = f.WriteSettings(settings...)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := frame.(*http2.HeadersFrame); ok {
				serve(f, h, c)
			}
		}
	})
}

// acceptor gives each connection to serve, and closes it then.
func acceptor(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	var (
		wg   sync.WaitGroup
		open sync.Map
	)
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(c, nil)
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		open.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return l.Addr().String()
}

// fullListener is an address that takes no further connection and refuses none.
func fullListener(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 4 {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			break
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	return addr
}

// held is a backend that answers nothing until the test ends.
func held(t testing.TB) *backend {
	t.Helper()
	return newBackend(t, "held", func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
}

// streaming is a backend that sends a beginning and then nothing.
func streaming(t testing.TB) *backend {
	t.Helper()
	return newBackend(t, "streaming", func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", q.Header.Get("Content-Type"))
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
	})
}

// occupy makes n requests that hang, and waits until they are at endpoints.
func (r *rig) occupy(n int, grpc bool) {
	r.t.Helper()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(r.t.Context())
	for range n {
		wg.Go(func() { r.ask(ctx, grpc, echo) })
	}
	r.t.Cleanup(func() { cancel(); wg.Wait() })
	testwait.Until(r.t, "requests are in flight", func() bool {
		sum := int64(0)
		for _, e := range r.set.Status()[0].Endpoints {
			sum += int64(e.Total.Issued)
		}
		return sum >= int64(n)
	})
}

// put2 sets the endpoints with what else the cluster is to have.
func (r *rig) put2(grpc bool, change func(*discovery.Cluster), addrs ...string) {
	r.t.Helper()
	c := &discovery.Cluster{HTTP2: grpc, Breakers: &[discovery.Priorities]discovery.Limits{discovery.DefaultLimits, discovery.DefaultLimits}}
	if change != nil {
		change(c)
	}
	r.putCluster(c, addrs...)
}

func deadlineOf(d time.Duration) func(*http.Request) {
	return func(q *http.Request) { q.Header.Set("Grpc-Timeout", fmt.Sprintf("%dm", d.Milliseconds())) }
}

// provocation brings a reason about with a real peer.
type provocation struct {
	reason upstream.Reason
	// only is "http" or "grpc" where the reason cannot come about in the other.
	only string
	// hop: the error names an endpoint.
	hop bool
	// direct: a reason of dialling that is told as it is.
	direct bool
	// broken: in HTTP/1.1 the response has begun, and can only break off.
	broken bool
	// do gives what the client heard.
	do func(r *rig, grpc bool) told
}

func fastRig(t *testing.T) *rig {
	return newRig(t, func(c *endpoints.Config) { c.FailFast = 300 * time.Millisecond; c.Drain = 100 * time.Millisecond })
}

var provocations = []provocation{
	{reason: upstream.BadAuthority, do: func(r *rig, grpc bool) told { return r.ask(r.t.Context(), grpc, "bad_host!:1") }},
	{reason: upstream.NoSuchService, do: func(r *rig, grpc bool) told { return r.ask(r.t.Context(), grpc, "nobody:1") }},
	{reason: upstream.DiscoveryPending, do: func(r *rig, grpc bool) told {
		r.disc.say(true, nil)
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.DiscoveryLimit, do: func(r *rig, grpc bool) told {
		r.disc.say(false, discovery.ErrDiscoveryLimit)
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.NeverReached, do: func(r *rig, grpc bool) told {
		r.disc.say(false, discovery.ErrNeverConnected)
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.NoEndpoints, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil)
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.AllEjected, hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, testaddr.Refused(r.t), testaddr.Refused(r.t))
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.FailFast, hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, testaddr.Refused(r.t))
		r.ask(r.t.Context(), grpc, echo)
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.DeadlineInQueue, only: "grpc", do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, testaddr.Refused(r.t))
		return r.ask(r.t.Context(), grpc, echo, deadlineOf(100*time.Millisecond))
	}},
	{reason: upstream.DeadlineInQueue, only: "http", do: func(r *rig, grpc bool) told {
		r.put2(grpc, func(c *discovery.Cluster) { c.Timeout = 100 * time.Millisecond }, testaddr.Refused(r.t))
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.Deadline, only: "grpc", hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, held(r.t).addr)
		return r.ask(r.t.Context(), grpc, echo, deadlineOf(100*time.Millisecond))
	}},
	{reason: upstream.Deadline, only: "http", hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, func(c *discovery.Cluster) { c.Timeout = 100 * time.Millisecond }, held(r.t).addr)
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.BreakerRequests, do: func(r *rig, grpc bool) told {
		r.put2(grpc, func(c *discovery.Cluster) { c.Breakers[0].Requests = 2 }, held(r.t).addr)
		r.occupy(2, grpc)
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.BreakerPending, do: func(r *rig, grpc bool) told {
		r.put2(grpc, func(c *discovery.Cluster) { c.Breakers[0].Pending = 0 }, testaddr.Refused(r.t))
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.BreakerConnections, only: "http", hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, func(c *discovery.Cluster) { c.Breakers[0].Connections = 1 }, held(r.t).addr)
		r.occupy(1, grpc)
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.BreakerConnections, only: "grpc", hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, func(c *discovery.Cluster) { c.Breakers[0].Connections = 0 }, held(r.t).addr)
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.StreamLimit, only: "grpc", hop: true, do: func(r *rig, grpc bool) told {
		one := []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 1}}
		r.put2(grpc, func(c *discovery.Cluster) { c.Breakers[0].Connections, c.Breakers[0].Pending = 2, 0 },
			frameServer(r.t, one, func(*http2.Framer, *http2.HeadersFrame, net.Conn) {}))
		r.occupy(2, grpc)
		return r.ask(r.t.Context(), grpc, echo)
	}},
	// Which of the connect reasons it was is in the error that names the last failure.
	{reason: upstream.ConnectTimeout, hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, func(c *discovery.Cluster) { c.ConnectTimeout = 100 * time.Millisecond }, fullListener(r.t))
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.ConnectRefused, hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, testaddr.Refused(r.t))
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.ConnectUnroutable, hop: true, do: func(r *rig, grpc bool) told {
		// No TCP goes to a group of hosts.
		r.put2(grpc, nil, "224.0.0.1:80")
		return r.ask(r.t.Context(), grpc, echo)
	}},
	// It accepts, and says goodbye at once: a trial by dial succeeds again and again.
	{reason: upstream.ConnectFailed, only: "grpc", hop: true, direct: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, acceptor(r.t, func(net.Conn) {}))
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.StreamRefused, only: "grpc", hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, frameServer(r.t, nil, func(f *http2.Framer, h *http2.HeadersFrame, _ net.Conn) {
			_ = f.WriteRSTStream(h.StreamID, http2.ErrCodeRefusedStream)
		}))
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.ResetBeforeHeaders, only: "http", hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, hungUp(r.t, ""))
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.ResetBeforeHeaders, only: "grpc", hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, frameServer(r.t, nil, func(_ *http2.Framer, _ *http2.HeadersFrame, c net.Conn) { _ = c.Close() }))
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.ResetMidBody, hop: true, broken: true, do: func(r *rig, grpc bool) told {
		b := streaming(r.t)
		r.put2(grpc, nil, b.addr)
		return r.interrupted(grpc, b.kill)
	}},
	{reason: upstream.ProtocolError, only: "http", hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, hungUp(r.t, "220 mail.example.com ESMTP\r\n"))
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.ProtocolError, only: "grpc", hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, byHand(r.t, func(int) string { return "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" }))
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.UpgradeFailed, only: "http", hop: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, byHand(r.t, func(int) string {
			return "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
		}))
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.Overload, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, held(r.t).addr)
		r.cfg.MaxActive = 2
		r.again()
		r.occupy(2, grpc)
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.BodyTooLarge, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, newBackend(r.t, "a", func(_ http.ResponseWriter, q *http.Request) { _, _ = io.Copy(io.Discard, q.Body) }).addr)
		r.cfg.MaxRequestBytes = 1000
		r.again()
		return r.ask(r.t.Context(), grpc, echo, func(q *http.Request) {
			q.Method = http.MethodPost
			q.Body = io.NopCloser(io.LimitReader(zeros{}, 1001))
			q.ContentLength = -1
		})
	}},
	{reason: upstream.HeaderLimit, do: func(r *rig, grpc bool) told {
		r.limit(proxy.LimitsConfig{HeaderCount: 5})
		return r.ask(r.t.Context(), grpc, echo, func(q *http.Request) { q.Header["X"] = []string{"1", "2", "3", "4", "5", "6"} })
	}},
	{reason: upstream.BodyTimeout, only: "http", do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, newBackend(r.t, "a", func(_ http.ResponseWriter, q *http.Request) { _, _ = io.Copy(io.Discard, q.Body) }).addr)
		r.limit(proxy.LimitsConfig{BodyIdle: 100 * time.Millisecond})
		body, w := io.Pipe()
		r.t.Cleanup(func() { _ = w.Close() })
		return r.ask(r.t.Context(), grpc, echo, func(q *http.Request) {
			q.Method, q.Body, q.ContentLength = http.MethodPost, body, 10
		})
	}},
	{reason: upstream.SlowReader, broken: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, newBackend(r.t, "a", func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", q.Header.Get("Content-Type"))
			_, _ = io.Copy(w, zeros{})
		}).addr)
		r.limit(proxy.LimitsConfig{WriteIdle: 200 * time.Millisecond})
		return r.unread(grpc)
	}},
	{reason: upstream.NotCaptured, do: func(r *rig, grpc bool) told {
		c := &proxy.Captured{Config: r.cfg, Inbound: true, Own: func(netip.AddrPort) bool { return false }}
		r.addr = r.serve(c.Serve)
		return r.ask(r.t.Context(), grpc, echo)
	}},
	{reason: upstream.BadBody, only: "http", do: func(r *rig, _ bool) told {
		r.put(newBackend(r.t, "a", func(_ http.ResponseWriter, q *http.Request) { _, _ = io.Copy(io.Discard, q.Body) }).addr)
		got := r.raw("POST / HTTP/1.1\r\nHost: echo:8080\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\nnonsense\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got)), nil)
		if err != nil {
			r.t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return told{status: resp.StatusCode, proxyStatus: resp.Header.Get("Proxy-Status"), line: string(b)}
	}},
	{reason: upstream.ClientGone, broken: true, do: func(r *rig, grpc bool) told {
		b := held(r.t)
		r.put2(grpc, nil, b.addr)
		ctx, cancel := context.WithTimeout(r.t.Context(), 200*time.Millisecond)
		defer cancel()
		r.ask(ctx, grpc, echo)
		return told{brokenOff: true}
	}},
	{reason: upstream.EndpointEjected, hop: true, broken: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, func(c *discovery.Cluster) { c.CloseOnEjection = true }, streaming(r.t).addr)
		return r.interrupted(grpc, r.eject)
	}},
	{reason: upstream.EndpointRemoved, hop: true, broken: true, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, streaming(r.t).addr)
		return r.interrupted(grpc, func() { r.put2(grpc, nil) })
	}},
	{reason: upstream.Draining, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, held(r.t).addr)
		got := make(chan told, 1)
		go func() { got <- r.ask(r.t.Context(), grpc, echo) }()
		testwait.Until(r.t, "in flight", func() bool { return r.set.Status()[0].Endpoints[0].Total.Issued == 1 })
		r.tracker.Expire()
		return <-got
	}},
	{reason: upstream.ConnectionAge, do: func(r *rig, grpc bool) told {
		r.put2(grpc, nil, held(r.t).addr)
		r.cfg.MaxConnectionAge, r.cfg.MaxConnectionAgeGrace = 100*time.Millisecond, 100*time.Millisecond
		r.again()
		return r.ask(r.t.Context(), grpc, echo)
	}},
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// again serves anew, with the rig's configuration as it is now.
func (r *rig) again() { r.addr = r.serveHTTP(r.http()) }

// limit serves anew with limits on requests.
func (r *rig) limit(cfg proxy.LimitsConfig) {
	r.t.Helper()
	var err error
	if r.cfg.Limits, err = proxy.NewLimits(cfg, r.reg); err != nil {
		r.t.Fatal(err)
	}
	r.again()
}

// unread asks for a response without an end, and takes none of it until it was broken off.
func (r *rig) unread(grpc bool) told {
	r.t.Helper()
	tr := transport(grpc)
	defer tr.CloseIdleConnections()
	q, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.addr+"/s/m", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	q.Host = echo
	if grpc {
		q.Header.Set("Content-Type", "application/grpc")
	}
	resp, err := tr.RoundTrip(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	testwait.Until(r.t, "counted", func() bool { return r.requests(upstream.SlowReader) > 0 })
	_, err = io.Copy(io.Discard, resp.Body)
	return told{status: resp.StatusCode, brokenOff: err != nil, grpc: resp.Trailer.Get("Grpc-Status")}
}

// interrupted asks for a response that does not end, and interrupts once the
// client has its "half". Headers alone would be too early: a connection that is
// killed takes with it what the proxy has not read yet.
func (r *rig) interrupted(grpc bool, interrupt func()) told {
	r.t.Helper()
	return r.hear(r.t.Context(), grpc, echo, func(body io.Reader) ([]byte, error) {
		half := make([]byte, len("half"))
		if _, err := io.ReadFull(body, half); err != nil {
			r.t.Errorf("before the interruption: %v", err)
		}
		interrupt()
		rest, err := io.ReadAll(body)
		return append(half, rest...), err
	})
}

var sinceWhen = regexp.MustCompile(`(ejected|none usable|healthy) since \d\d:\d\d:\d\d\.\d\d\dZ`)

// Every reason there is comes about with a real peer, over HTTP/1.1 and as
// gRPC, and is told the same way in the response, and in the metrics.
func TestEveryReason(t *testing.T) {
	seen := map[upstream.Reason]bool{}
	for _, p := range provocations {
		seen[p.reason] = true
		for _, kind := range []string{"http", "grpc"} {
			if p.only != "" && p.only != kind {
				continue
			}
			t.Run(string(p.reason)+"/"+kind, func(t *testing.T) {
				r := fastRig(t)
				got := p.do(r, kind == "grpc")
				p.check(r, kind, got)
			})
		}
	}
	for _, reason := range upstream.Reasons() {
		if place, ok := elsewhere[reason]; ok {
			place.check(t, reason)
		} else if !seen[reason] {
			t.Errorf("nothing provokes %s", reason)
		}
	}
}

// place is a test that provokes a reason, and says by word what it looks for.
type place struct{ file, test, word string }

// elsewhere are the reasons that other tests provoke: those of retries, and those
// of connections, which have no response or need rules of the kernel.
var elsewhere = map[upstream.Reason]place{
	upstream.BreakerRetries:     {"retry_test.go", "TestRetryBudget", "breaker_retries"},
	upstream.TryTimeout:         {"retry_test.go", "TestPerTryTimeout", "per_try_timeout"},
	upstream.Malformed:          {"malformed_test.go", "TestMalformedIsTold", "upstream.Malformed"},
	upstream.Internal:           {"panic_test.go", "TestPanic", "internal_error"},
	upstream.HeaderTimeout:      {"../limits_test.go", "TestHeaderLimits", "header_timeout"},
	upstream.ConnectionLimit:    {"../limits_test.go", "TestConnectionLimit", "connection_limit"},
	upstream.BadProxyHeader:     {"../limits_test.go", "TestProxyHeaderIn", "bad_proxy_header"},
	upstream.IdleTimeout:        {"../limits_test.go", "TestTCPIdle", "idle_timeout"},
	upstream.UnknownDestination: {"../capture_linux_test.go", "TestUnknownDestinations", "unknown_destination"},
	upstream.Loop:               {"../capture_linux_test.go", "TestInbound", "loop"},
}

// check fails when the test is gone, or looks for the reason no more.
func (p place) check(t *testing.T, reason upstream.Reason) {
	t.Helper()
	b, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	_, body, ok := strings.Cut(string(b), "func "+p.test+"(")
	body, _, _ = strings.Cut(body, "\nfunc ")
	if !ok || !strings.Contains(body, p.word) {
		t.Errorf("%s in %s does not provoke %s", p.test, p.file, reason)
	}
}

func (p provocation) check(r *rig, kind string, got told) {
	r.t.Helper()
	reason := p.reason
	if reason.Dial() && !p.direct {
		// A dial that failed is followed by the wait for another endpoint; the line has the cause.
		if !strings.Contains(got.line, "last: "+string(reason)+" ") {
			r.t.Errorf("the line does not name the cause %s: %s", reason, got.line)
		}
		reason = upstream.AllEjected
	}
	testwait.Until(r.t, fmt.Sprintf("metrics count %s after %+v", reason, got), func() bool { return r.requests(reason) > 0 })
	if p.broken && (kind == "http" || reason == upstream.ClientGone || reason == upstream.SlowReader) {
		if !got.brokenOff {
			r.t.Errorf("the response did not break off: %+v", got)
		}
		return
	}
	status := reason.Status()
	if kind == "grpc" {
		status = http.StatusOK
		if got.grpc != fmt.Sprint(int(reason.GRPC())) {
			r.t.Errorf("grpc-status %q, want %d (%s)", got.grpc, reason.GRPC(), reason.GRPC())
		}
	}
	if got.status != status {
		r.t.Errorf("status %d, want %d", got.status, status)
	}
	for _, want := range []string{"error=" + reason.ProxyError(), "layer=" + string(reason.Layer()), "reason=" + string(reason)} {
		if !strings.Contains(got.proxyStatus, want) {
			r.t.Errorf("Proxy-Status %q lacks %s", got.proxyStatus, want)
		}
	}
	if want := "freshmesh: " + string(reason.Layer()) + ": " + string(reason); !strings.Contains(got.line, want) {
		r.t.Errorf("%q lacks %q", got.line, want)
	}
	if p.hop && !strings.Contains(got.line, "127.0.0.1:") && !strings.Contains(got.line, "224.0.0.1:80") {
		r.t.Errorf("no endpoint is named: %q", got.line)
	}
	if slow := reason == upstream.NoEndpoints || reason == upstream.AllEjected || reason == upstream.FailFast; slow && !sinceWhen.MatchString(got.line) {
		r.t.Errorf("it does not say since when: %q", got.line)
	}
}

// requests is what freshmesh_requests_total says of a reason.
func (r *rig) requests(reason upstream.Reason) float64 {
	return r.counter("freshmesh_requests_total", string(reason))
}

// counted waits until freshmesh_requests_total says so many of a reason: a request is counted after its client has the answer.
func (r *rig) counted(reason upstream.Reason, n float64) {
	r.t.Helper()
	testwait.Until(r.t, fmt.Sprintf("%v counted as %s", n, reason), func() bool { return r.requests(reason) == n })
}

// counter adds up the series of a counter that have the label.
func (r *rig) counter(name, label string) float64 {
	r.t.Helper()
	return r.sum(name, func(labels []string) bool { return slices.Contains(labels, label) })
}

// total adds up all series of a counter.
func (r *rig) total(name string) float64 {
	r.t.Helper()
	return r.sum(name, func([]string) bool { return true })
}

func (r *rig) sum(name string, counts func(labels []string) bool) float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if counts(labels) {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
