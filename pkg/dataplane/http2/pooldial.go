package http2

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

func dialer(p *upstream.Pool) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		c, err := p.Dial(ctx)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

// dial has a connection made. It needs mu.
func (p *Pool) dial() {
	p.dialling++
	p.all.Go(p.connect)
}

// connect makes a connection and sees it through.
func (p *Pool) connect() {
	nc, err := p.reach()
	if err != nil {
		p.missed(upstream.AsError(err))
		return
	}
	c := newClient(nc, p.cfg.Address, p.conn, p)
	late := time.AfterFunc(p.cfg.ConnectTimeout, func() {
		c.mu.Lock()
		ready := c.ready
		c.mu.Unlock()
		if !ready {
			c.cut(&upstream.Error{
				Reason: upstream.ConnectTimeout, NextHop: p.cfg.Address, Unsent: true, Unanswered: true,
				Err: errors.New("connected, but no HTTP/2 settings came in time"),
			})
		}
	})
	err = c.run(p.ctx)
	late.Stop()
	p.mu.Lock()
	delete(p.leaving, c)
	// There is room for another one.
	p.shut = false
	p.mu.Unlock()
	c.mu.Lock()
	ready := c.ready
	c.mu.Unlock()
	switch {
	case !ready:
		p.missed(p.greetError(err))
	case p.wanted():
		var t Turn
		p.Flush(&t)
		t.End()
	}
}

// reach dials. A panic is a connection that could not be made.
func (p *Pool) reach() (nc net.Conn, err error) {
	defer func() {
		if p.conn.Panicked == nil {
			return
		}
		if v := recover(); v != nil {
			p.conn.Panicked(v, debug.Stack())
			nc, err = nil, errDefect(v)
		}
	}()
	return p.cfg.Dial(p.ctx)
}

// missed fails those who wait for a connection that could not be made, unless others are being made. Where there
// are some, they are not the ones to wait for: only those who are not patient are then told that they are full.
func (p *Pool) missed(e *upstream.Error) {
	var t Turn
	p.mu.Lock()
	p.dialling--
	p.shut = e.Reason == upstream.BreakerConnections && !p.again
	if p.again {
		p.again = false
		p.dialFor(p.staying)
	}
	var out []waiter
	switch some := len(p.conns) > 0 || p.shut && len(p.leaving) > 0; {
	case p.retired:
		out, e = p.pick(everybody), p.gone()
	case p.dialling > 0:
	case !some:
		out = p.pick(everybody)
	case p.places(1) > 0:
		// Another connection has become ready meanwhile.
		t.Add(p)
	default:
		out = p.pick(func(w waiter) bool { return !w.stays })
		// One that winds up takes no more either, but that is not for its streams. One that carries nothing was idle,
		// and gives its place back at once.
		if p.shut && (len(p.conns) > 0 || p.emptying()) {
			e = p.full()
		}
	}
	p.mu.Unlock()
	failEach(&t, out, e)
	t.End()
}

// emptying tells whether a connection that is leaving carries nothing any more. It needs mu.
func (p *Pool) emptying() bool {
	for c := range p.leaving {
		if c.empty() {
			return true
		}
	}
	return false
}

func everybody(waiter) bool { return true }

// greetError is why a connection that was made never became one of HTTP/2.
func (p *Pool) greetError(err error) *upstream.Error {
	if e, ok := errors.AsType[*upstream.Error](err); ok {
		return e
	}
	e := &upstream.Error{Reason: upstream.ConnectFailed, NextHop: p.cfg.Address, Unsent: true, Unanswered: true, Err: fmt.Errorf("connected, and closed before the first answer: %w", err)}
	if c, ok := errors.AsType[*ConnError](err); ok && c.Code != http2.ErrCodeNo {
		e.Reason = upstream.ProtocolError
		e.Err = fmt.Errorf("what came on a new connection is not HTTP/2: %w", err)
	}
	return e
}

func (p *Pool) gone() *upstream.Error {
	return &upstream.Error{Reason: upstream.EndpointRemoved, NextHop: p.cfg.Address, Unsent: true, Unanswered: true}
}

func (p *Pool) wanted() bool { return p.waiters.Load() > 0 }

// clientReady takes a connection into service, unless it has been in it: it may have left.
func (p *Pool) clientReady(t *Turn, c *Client, first bool) {
	p.mu.Lock()
	if first {
		p.dialling--
		p.conns = append(p.conns, c)
	}
	retired := p.retired
	p.mu.Unlock()
	if retired {
		c.leave()
		return
	}
	if p.wanted() {
		t.Add(p)
	}
}

// clientLeaves takes a connection out of service.
func (p *Pool) clientLeaves(t *Turn, c *Client) {
	p.mu.Lock()
	if i := slices.Index(p.conns, c); i >= 0 {
		p.conns = slices.Delete(p.conns, i, i+1)
		p.leaving[c] = struct{}{}
	}
	p.mu.Unlock()
	if p.wanted() {
		t.Add(p)
	}
}
