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
	c := newEndpointConn(nc, p.cfg.Address, p.connConfig, p)
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
	p.atLimit = false
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
		t.end()
	}
}

// reach dials. A panic is a connection that could not be made.
func (p *Pool) reach() (nc net.Conn, err error) {
	defer func() {
		if p.connConfig.Panicked == nil {
			return
		}
		if v := recover(); v != nil {
			p.connConfig.Panicked(v, debug.Stack())
			nc, err = nil, errDefect(v)
		}
	}()
	return p.cfg.Dial(p.ctx)
}

// missed notes that a connection could not be made, and tells those who waited for nothing else.
func (p *Pool) missed(e *upstream.Error) {
	var t Turn
	p.mu.Lock()
	p.dialling--
	p.lastMiss = e
	refused := e.Reason == upstream.BreakerConnections
	p.atLimit = refused && !p.limitRaised
	if refused && p.limitRaised {
		p.dialFor(p.patients)
	}
	p.limitRaised = false
	out, e := p.inVain(&t, e)
	p.mu.Unlock()
	failEach(&t, out, e)
	t.end()
}

// inVain takes those out of the queue for whom a connection that came to nothing, because of e, is the end of their
// wait, and gives them with their error:
//
//   - nobody, while other connections are being made, or one has a place by now;
//   - all, where there is no other connection, or the pool is retired;
//   - the impatient otherwise: the connections there are carry all that they may, and a patient one waits for those.
//
// It needs mu.
func (p *Pool) inVain(t *Turn, e *upstream.Error) (out []waiter, why *upstream.Error) {
	switch some := len(p.conns) > 0 || p.atLimit && len(p.leaving) > 0; {
	case p.retired:
		return p.pick(everybody), upstream.Removed(p.cfg.Address)
	case p.dialling > 0:
	case !some:
		return p.pick(everybody), e
	case p.places(1) > 0:
		// Another connection has become ready meanwhile.
		t.add(p)
	default:
		out = p.pick(impatient)
		if why = e; p.atLimit {
			why = p.full()
		}
	}
	if !p.atLimit && p.patients > 0 {
		p.pauseDials()
	}
	return out, why
}

// dialPause is about how long no connection is made for patient requests after one came to nothing.
const dialPause = 200 * time.Millisecond

// pauseDials has no connection made for patient requests for a while: they wait on after a failure, so nothing else
// would keep dials from following one another without end. It needs mu.
func (p *Pool) pauseDials() {
	if p.pause == nil {
		p.pause = time.AfterFunc(dialPause/2+rand.N(dialPause/2), p.resumeDials)
	}
}

// resumeDials has a connection made for those who still wait.
func (p *Pool) resumeDials() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause = nil
	n := len(p.queue)
	p.dialFor(n - p.places(n))
}

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

func (p *Pool) wanted() bool { return p.waiters.Load() > 0 }

// connReady implements connOwner. Only a first time takes the connection into service: by a later one it may have left.
func (p *Pool) connReady(t *Turn, c *endpointConn, first bool) {
	p.mu.Lock()
	if first {
		p.dialling--
		p.atLimit = false
		p.conns = append(p.conns, c)
	}
	retired := p.retired
	p.mu.Unlock()
	if retired {
		c.leave()
		return
	}
	if p.wanted() {
		t.add(p)
	}
}

// connLeaves implements connOwner. A useless connection is as good as one that could not be made.
func (p *Pool) connLeaves(t *Turn, c *endpointConn, useless *upstream.Error) {
	var out []waiter
	p.mu.Lock()
	if i := slices.Index(p.conns, c); i >= 0 {
		p.conns = slices.Delete(p.conns, i, i+1)
		p.leaving[c] = struct{}{}
		if useless != nil {
			p.lastMiss = useless
			out, useless = p.inVain(t, useless)
		}
	}
	p.mu.Unlock()
	failEach(t, out, useless)
	if p.wanted() {
		t.add(p)
	}
}
