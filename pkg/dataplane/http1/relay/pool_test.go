package relay_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

func pool(t *testing.T, cfg relay.PoolConfig) *relay.Pool {
	t.Helper()
	endpoint := raw(t, func(c *net.TCPConn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	cfg.Address = netip.MustParseAddrPort(endpoint)
	cfg.Dial = func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", endpoint) }
	p := relay.NewPool(cfg)
	t.Cleanup(p.Close)
	return p
}

func acquire(t *testing.T, p *relay.Pool) *relay.Conn {
	t.Helper()
	c, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPoolReserves(t *testing.T) {
	p := pool(t, relay.PoolConfig{})
	a, b := acquire(t, p), acquire(t, p)
	if a == b || p.Open() != 2 {
		t.Fatal("a connection was given twice")
	}
	a.Release()
	b.Release()
	if c := acquire(t, p); c != b || p.Open() != 2 {
		t.Error("not the one that was used last")
	}
}

func TestPoolBounds(t *testing.T) {
	p := pool(t, relay.PoolConfig{MaxIdle: 1, IdleTimeout: 30 * time.Millisecond})
	a, b := acquire(t, p), acquire(t, p)
	a.Release()
	b.Release()
	if p.Open() > 1 {
		t.Errorf("%d are kept, want 1 at most", p.Open())
	}
	testwait.Until(t, "none is left when it has been idle", func() bool { return p.Open() == 0 })
	acquire(t, p).Release()
	p.CloseIdle()
	if p.Open() != 0 {
		t.Error("CloseIdle left one")
	}
}

func TestPoolRetires(t *testing.T) {
	p := pool(t, relay.PoolConfig{})
	busy, idle := acquire(t, p), acquire(t, p)
	idle.Release()
	p.Retire(-1)
	if p.Open() != 1 {
		t.Errorf("%d are open, want the busy one", p.Open())
	}
	_, err := p.Acquire(t.Context())
	if e, ok := errors.AsType[*upstream.Error](err); !ok || e.Reason != upstream.EndpointRemoved || !e.Unsent {
		t.Errorf("got %v", err)
	}
	busy.Release()
	if p.Open() != 0 {
		t.Error("what was busy is kept")
	}
}

// What is still busy at the end of the drain time is broken off.
func TestPoolKills(t *testing.T) {
	r := start(t, relay.Config{}, raw(t, func(c *net.TCPConn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) }))
	c := r.dial()
	c.send(get())
	testwait.Until(t, "the request upstream", func() bool { return r.pools[0].Open() == 1 })
	r.pools[0].Retire(20 * time.Millisecond)
	if resp, _ := c.response("GET"); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("status %d", resp.StatusCode)
	}
	if e := r.lastError(); e.Reason != upstream.ResetBeforeHeaders || e.Unsent || !e.Unanswered {
		t.Errorf("error %+v", e)
	}
}
