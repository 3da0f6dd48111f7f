package http2

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// missed notes that a connection could not be made.
func (p *Pool) missed(e *upstream.Error) {
	var t Turn
	p.mu.Lock()
	p.dialling--
	p.miss = e
	refused := e.Reason == upstream.BreakerConnections
	p.shut = refused && !p.again
	if refused && p.again {
		p.dialFor(p.staying)
	}
	p.again = false
	out, e := p.inVain(&t, e)
	p.mu.Unlock()
	failEach(&t, out, e)
	t.End()
}

// inVain gives those whose wait for a connection that came to nothing is over, with their error: all, unless others
// are being made. Where there are some, they are not the ones to wait for: only those who are not patient are then
// told that they are full. It needs mu.
func (p *Pool) inVain(t *Turn, e *upstream.Error) (out []waiter, why *upstream.Error) {
	switch some := len(p.conns) > 0 || p.shut && len(p.leaving) > 0; {
	case p.retired:
		return p.pick(everybody), p.gone()
	case p.dialling > 0:
	case !some:
		return p.pick(everybody), e
	case p.places(1) > 0:
		// Another connection has become ready meanwhile.
		t.Add(p)
	default:
		out = p.pick(func(w waiter) bool { return !w.stays })
		if why = e; p.shut {
			why = p.full()
		}
	}
	if !p.shut && p.staying > 0 {
		p.rest()
	}
	return out, why
}

// restFor is about how long no connection is made for those who stay after one came to nothing.
const restFor = 200 * time.Millisecond

// rest has none made for a while for those who stay: nobody else would slow that down. It needs mu.
func (p *Pool) rest() {
	if p.resting == nil {
		p.resting = time.AfterFunc(restFor/2+rand.N(restFor/2), p.rested)
	}
}

// rested has one made for those who still wait.
func (p *Pool) rested() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resting = nil
	n := len(p.queue)
	p.dialFor(n - p.places(n))
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
		p.shut = false
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

// clientLeaves takes a connection out of service. One that was of no use is as good as one that could not be made.
func (p *Pool) clientLeaves(t *Turn, c *Client, useless *upstream.Error) {
	var out []waiter
	p.mu.Lock()
	if i := slices.Index(p.conns, c); i >= 0 {
		p.conns = slices.Delete(p.conns, i, i+1)
		p.leaving[c] = struct{}{}
		if useless != nil {
			p.miss = useless
			out, useless = p.inVain(t, useless)
		}
	}
	p.mu.Unlock()
	failEach(t, out, useless)
	if p.wanted() {
		t.Add(p)
	}
}
