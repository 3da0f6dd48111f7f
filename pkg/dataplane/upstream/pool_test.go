package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// server serves h on HTTP/1.1 and h2c and counts its connections.
func server(t *testing.T, h http.HandlerFunc) (netip.AddrPort, func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	opened := 0
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: h, Protocols: &p, ConnState: func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			mu.Lock()
			opened++
			mu.Unlock()
		}
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return l.Addr().(*net.TCPAddr).AddrPort(), func() int {
		mu.Lock()
		defer mu.Unlock()
		return opened
	}
}

func pool(t *testing.T, c upstream.Config) *upstream.Pool {
	t.Helper()
	p := upstream.New(c)
	t.Cleanup(p.Close)
	return p
}

func request(t *testing.T, p *upstream.Pool) (string, error) {
	t.Helper()
	c, err := p.Acquire(t.Context())
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func TestConnectionsAreReused(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		addr, opened := server(t, ok)
		p := pool(t, upstream.Config{Address: addr, HTTP2: h2})
		for range 50 {
			if got, err := request(t, p); got != "ok" || err != nil {
				t.Fatal(got, err)
			}
		}
		// net/http gives a connection of HTTP/1.1 back a moment after the end of the
		// answer; what is asked before that opens another one.
		most := 5
		if h2 {
			most = 1
		}
		if opened() > most || p.Open() != opened() {
			t.Errorf("http2=%v: %d connections opened, %d open", h2, opened(), p.Open())
		}
	}
}

func TestHTTP2DialsOnceForMany(t *testing.T) {
	addr, opened := server(t, ok)
	p := pool(t, upstream.Config{Address: addr, HTTP2: true})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if got, err := request(t, p); got != "ok" || err != nil {
				t.Error(got, err)
			}
		})
	}
	wg.Wait()
	if opened() != 1 {
		t.Errorf("%d connections", opened())
	}
}

func TestReleaseGivesTheRoomBack(t *testing.T) {
	addr, opened := server(t, ok)
	p := pool(t, upstream.Config{Address: addr})
	for range 5 {
		c, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.Release()
	}
	if opened() > 1 || p.Open() != 1 {
		t.Errorf("%d opened, %d open", opened(), p.Open())
	}
}

func TestRetireLetsFinish(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		release, entered := make(chan struct{}), make(chan struct{})
		addr, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-release
			ok(w, r)
		})
		p := pool(t, upstream.Config{Address: addr, HTTP2: h2})
		got := make(chan string, 1)
		go func() {
			s, err := request(t, p)
			if err != nil {
				s = err.Error()
			}
			got <- s
		}()
		<-entered
		p.Retire(10 * time.Second)
		if _, err := request(t, p); upstream.ReasonOf(err) != upstream.EndpointRemoved {
			t.Errorf("new work: %v", err)
		}
		close(release)
		if s := <-got; s != "ok" {
			t.Errorf("http2=%v: in flight: %s", h2, s)
		}
		none(t, p)
	}
}

func none(t *testing.T, p *upstream.Pool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Second); p.Open() > 0; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections stay open", p.Open())
		}
	}
}

func TestRetireClosesIdleAtOnceAndBusyAfterDrain(t *testing.T) {
	addr, _ := server(t, ok)
	p := pool(t, upstream.Config{Address: addr})
	if _, err := request(t, p); err != nil {
		t.Fatal(err)
	}
	p.Retire(time.Hour)
	none(t, p)

	hang, _ := server(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	p = pool(t, upstream.Config{Address: hang})
	got := make(chan error, 1)
	go func() {
		_, err := request(t, p)
		got <- err
	}()
	for p.Open() == 0 {
		<-time.NewTimer(time.Millisecond).C
	}
	p.Retire(50 * time.Millisecond)
	if err := <-got; err == nil {
		t.Error("request outlived the drain time")
	}
	none(t, p)
}

func TestIdleConnectionsAreReaped(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		addr, _ := server(t, ok)
		p := pool(t, upstream.Config{Address: addr, HTTP2: h2, IdleTimeout: 30 * time.Millisecond})
		if _, err := request(t, p); err != nil {
			t.Fatal(err)
		}
		none(t, p)
	}
}

func TestDialErrorsHaveReasons(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := l.Addr().(*net.TCPAddr).AddrPort()
	_ = l.Close()
	for _, h2 := range []bool{false, true} {
		p := pool(t, upstream.Config{Address: refused, HTTP2: h2})
		_, err := request(t, p)
		e, is := errors.AsType[*upstream.Error](err)
		if !is || e.Reason != upstream.ConnectRefused || !e.Unsent || e.NextHop != refused {
			t.Errorf("http2=%v: %#v", h2, err)
		}
		if want := "connection: connect_refused: " + refused.String() + ": dial " + refused.String() + ": connect: connection refused"; err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Acquire(ctx); upstream.ReasonOf(err) != upstream.ClientGone && upstream.ReasonOf(err) != upstream.ConnectRefused {
			t.Errorf("cancelled: %v", err)
		}
	}
}

// swallow gives an address that lets no dial succeed and none fail: the queue of its listener is full.
func swallow(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*syscall.SockaddrInet4).Port))
	for range 8 {
		c, err := net.DialTimeout("tcp", addr.String(), 100*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Skip("this system's queue of a listener has no end")
	return addr
}

// A dial that several requests share outlives the one that began it, and not the pool.
func TestCloseEndsTheSharedDial(t *testing.T) {
	p := upstream.New(upstream.Config{Address: swallow(t), HTTP2: true, ConnectTimeout: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.Acquire(ctx); upstream.ReasonOf(err) != upstream.Deadline {
		t.Fatalf("got %v, want %s", err, upstream.Deadline)
	}
	got := make(chan error, 1)
	go func() {
		_, err := p.Acquire(t.Context())
		got <- err
	}()
	p.Close()
	if err := <-got; upstream.ReasonOf(err) != upstream.EndpointRemoved {
		t.Errorf("got %v, want %s", err, upstream.EndpointRemoved)
	}
	goleak.VerifyNone(t)
}

// An idle connection that its server closes under a request: it is known that
// no answer came, and whether anything went out.
func TestClosedUnderTheRequest(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			br := bufio.NewReader(c)
			for i := range 2 {
				if _, err := http.ReadRequest(br); err != nil || i == 1 {
					break
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	p := pool(t, upstream.Config{Address: l.Addr().(*net.TCPAddr).AddrPort()})
	if got, err := request(t, p); got != "ok" {
		t.Fatal(err)
	}
	_, err = request(t, p)
	e, is := errors.AsType[*upstream.Error](err)
	if !is || e.Reason != upstream.ResetBeforeHeaders || e.Unsent || !e.Unanswered || !e.Reused {
		t.Errorf("%#v", err)
	}
}
