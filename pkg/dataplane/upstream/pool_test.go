package upstream_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// listener accepts and holds.
func listener(t *testing.T) netip.AddrPort {
	t.Helper()
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
			defer func() { _ = c.Close() }()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func pool(t *testing.T, c upstream.Config) *upstream.Pool {
	t.Helper()
	p := upstream.New(c)
	t.Cleanup(p.Close)
	return p
}

// ended waits for the end of a connection.
func ended(t *testing.T, r *upstream.Raw) {
	t.Helper()
	_ = r.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("not closed: %v", err)
	}
}

func TestRetire(t *testing.T) {
	p := pool(t, upstream.Config{Address: listener(t)})
	r, err := p.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := p.Open(); n != 1 {
		t.Errorf("%d open", n)
	}
	p.Retire(50 * time.Millisecond)
	if _, err := p.Dial(t.Context()); upstream.ReasonOf(err) != upstream.EndpointRemoved {
		t.Errorf("new work: %v", err)
	}
	ended(t, r)
	if n := p.Open(); n != 0 {
		t.Errorf("%d open", n)
	}
}

func TestClose(t *testing.T) {
	p := pool(t, upstream.Config{Address: listener(t)})
	first, err := p.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := p.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	p.Retire(-1)
	p.Close()
	ended(t, second)
	if n := p.Open(); n != 0 {
		t.Errorf("%d open", n)
	}
}

func TestDialErrorsHaveReasons(t *testing.T) {
	refused := netip.MustParseAddrPort(testaddr.Refused(t))
	p := pool(t, upstream.Config{Address: refused})
	_, err := p.Dial(t.Context())
	e, is := errors.AsType[*upstream.Error](err)
	if !is || e.Reason != upstream.ConnectRefused || !e.Unsent || e.NextHop != refused {
		t.Errorf("%#v", err)
	}
	if want := "connection: connect_refused: " + refused.String() + ": dial " + refused.String() + ": connect: connection refused"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Dial(ctx); upstream.ReasonOf(err) != upstream.ClientGone && upstream.ReasonOf(err) != upstream.ConnectRefused {
		t.Errorf("cancelled: %v", err)
	}
}

// OnClose hears of the end of its connection once, whenever that comes, and not after it was undone.
func TestOnClose(t *testing.T) {
	p := upstream.New(upstream.Config{Address: listener(t)})
	defer p.Close()
	heard := 0
	dial := func() *upstream.Raw {
		r, err := p.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	before := dial()
	before.OnClose(func() { heard++ })
	_ = before.Close()
	_ = before.Close()
	if heard != 1 {
		t.Errorf("heard of %d ends, want 1", heard)
	}
	before.OnClose(func() { heard++ })
	if heard != 2 {
		t.Error("nothing heard of one that has been closed")
	}
	undone := dial()
	undone.OnClose(func() { heard++ })()
	_ = undone.Close()
	if heard != 2 {
		t.Error("heard after it was undone")
	}
}
