package http2

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// mayDial is a Gate that can be closed.
type mayDial struct{ not atomic.Bool }

func (m *mayDial) Open() error {
	if m.not.Load() {
		return &upstream.Error{}
	}
	return nil
}

func (*mayDial) Closed() {}

// singles is an endpoint that allows a stream on each connection, and keeps it until let is closed.
func singles(t *testing.T, let <-chan struct{}) string {
	t.Helper()
	return scripted(t, []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 1}}, func(c *rawConn) {
		id := c.request()
		<-let
		c.respond(id, true, ":status", "204")
		c.request()
	})
}

// TestRefusedLongAgo: that no connection might be made once holds nobody up when some may.
func TestRefusedLongAgo(t *testing.T) {
	let := make(chan struct{})
	address := netip.MustParseAddrPort(singles(t, let))
	g := &mayDial{}
	p := NewPool(PoolConfig{Address: address, Dial: dialer(upstream.New(upstream.Config{Address: address, Gate: g}))})
	defer p.Close()
	m := &message.Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/"}
	g.not.Store(true)
	if _, err := p.Ask(t.Context(), m, false); upstream.ReasonOf(err) != upstream.BreakerConnections {
		t.Fatal(err)
	}
	// Nobody waits, so nobody is told that there may be one again.
	g.not.Store(false)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const all = 5
	var placed, over sync.WaitGroup
	placed.Add(all)
	for range all {
		over.Go(func() {
			a, err := p.Ask(ctx, m, true)
			placed.Done()
			if err != nil {
				t.Error(err)
				return
			}
			if _, _, err := receive(a); err != nil {
				t.Error(err)
			}
			a.End()
		})
	}
	placed.Wait()
	close(let)
	over.Wait()
}
