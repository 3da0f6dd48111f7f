package http2

import (
	"net"
	"net/netip"
	"testing"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// busyNear keeps its connection's reader until it is let go.
type busyNear struct {
	Near
	at, let chan struct{}
}

func (n *busyNear) Response(*Turn, uint64, *message.Response, bool) {
	close(n.at)
	<-n.let
}

func (n *busyNear) Failed(*Turn, uint64, *upstream.Error) {}

// TestAnsweredBeforeTheEnd: an endpoint answers and goes, and what is written to it fails before its answer was read.
// That was an answer all the same.
func TestAnsweredBeforeTheEnd(t *testing.T) {
	busy := &busyNear{at: make(chan struct{}), let: make(chan struct{})}
	answered := make(chan struct{})
	backend := scripted(t, nil, func(c *rawConn) {
		first := c.request()
		second := c.request()
		c.respond(first, true, ":status", "200")
		<-busy.at
		c.respond(second, true, ":status", "204")
		_ = c.Conn.(*net.TCPConn).CloseWrite()
		close(answered)
	})
	p := NewPool(PoolConfig{Address: netip.MustParseAddrPort(backend)})
	defer p.Close()
	m := func(length int64) *message.Request {
		return &message.Request{Method: "POST", Scheme: "http", Authority: "a", Path: "/", Length: length}
	}
	// Its head is all there is of the third one, whose body follows when the endpoint has gone.
	third, err := p.Ask(t.Context(), m(-1), false)
	if err != nil {
		t.Fatal(err)
	}
	defer third.End()
	var turn Turn
	if _, _, err := p.Open(&turn, busy, 1, m(0), true, false); err != nil {
		t.Fatal(err)
	}
	turn.end()
	second, err := p.Ask(t.Context(), m(0), false)
	if err != nil {
		t.Fatal(err)
	}
	defer second.End()
	<-answered
	c := p.inService()[0]
	testwait.Until(t, "writing fails", func() bool {
		_ = third.Write([]byte("a message"))
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.dead
	})
	close(busy.let)
	if head, err := second.Head(); err != nil || head.Status != 204 {
		t.Errorf("%v, %v", head, err)
	}
}
