package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// sharedDial is one dial that many requests wait for, since one HTTP/2 connection carries them all.
type sharedDial struct {
	// cancel is for Close alone.
	cancel context.CancelFunc
	done   chan struct{}
	// err is set before done is closed.
	err error
}

// Acquire gives a connection with room for one request: an idle one, or a new
// one. Its error is an *Error with Unsent.
func (p *Pool) Acquire(ctx context.Context) (Conn, error) {
	for {
		c, dial, err := p.reserve(ctx)
		if err != nil {
			return nil, err
		}
		if c != nil {
			return c, nil
		}
		if dial == nil {
			return p.open(ctx)
		}
		select {
		case <-dial.done:
			if dial.err != nil {
				return nil, dial.err
			}
		case <-ctx.Done():
			return nil, dialError(ctx, p.cfg.Address, ctx.Err())
		}
	}
}

// reserve gives an open connection with a place taken, or what choose does without one.
func (p *Pool) reserve(ctx context.Context) (*conn, *sharedDial, error) {
	for {
		c, dial, err := p.choose(ctx)
		if c == nil || err != nil {
			return nil, dial, err
		}
		if c.Reserve() == nil {
			return c, nil, nil
		}
		if c.Err() != nil {
			p.forget(c)
		}
	}
}

// choose gives an open connection that seems to have room, or a dial to wait
// for, or neither: then the caller dials for itself. Reserve is left to the
// caller, because it may run the state hook, which takes the lock.
func (p *Pool) choose(ctx context.Context) (*conn, *sharedDial, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		return nil, nil, p.gone()
	}
	for _, c := range slices.Backward(p.conns) {
		if !c.busy && c.Available() > 0 {
			c.busy = !p.cfg.HTTP2
			return c, nil, nil
		}
	}
	if !p.cfg.HTTP2 {
		return nil, nil, nil
	}
	if p.shared == nil {
		// The dial outlives the request that began it, as others wait for it
		// too; the connect timeout bounds it, and Close waits for its end.
		dialling, cancel := context.WithCancel(context.WithoutCancel(ctx))
		p.shared = &sharedDial{cancel: cancel, done: make(chan struct{})}
		go p.dialShared(dialling, p.shared)
	}
	return nil, p.shared, nil
}

func (p *Pool) dialShared(ctx context.Context, d *sharedDial) {
	defer d.cancel()
	c, err := p.open(ctx)
	switch {
	case err == nil:
		c.Release()
	case ctx.Err() != nil:
		err = p.gone()
	}
	d.err = err
	p.mu.Lock()
	p.shared = nil
	p.mu.Unlock()
	close(d.done)
}

type netConnKey struct{}

// open dials a connection and reserves its first place.
func (p *Pool) open(ctx context.Context) (Conn, error) {
	c := &conn{pool: p, busy: !p.cfg.HTTP2, used: time.Now()}
	cc, err := p.http.NewClientConn(context.WithValue(ctx, netConnKey{}, c), "http", p.cfg.Address.String())
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			return nil, p.limited(e)
		}
		return nil, dialError(ctx, p.cfg.Address, err)
	}
	c.ClientConn = cc
	if err := p.ready(ctx, c); err != nil {
		_ = cc.Close()
		return nil, err
	}
	c.streams = c.Available() + c.InFlight()
	p.mu.Lock()
	if p.retired {
		p.mu.Unlock()
		_ = cc.Close()
		return nil, p.gone()
	}
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	cc.SetStateHook(func(*http.ClientConn) { p.changed(c) })
	return c, nil
}

// limited says that it is for the streams if a further connection would have
// been needed only because those that are open carry no more. One that winds
// up after a GOAWAY takes no more either, but that is not for its streams.
func (p *Pool) limited(e *Error) *Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	full := func(c *conn) bool { return c.Err() == nil && c.InFlight() >= c.streams }
	if e.Reason == BreakerConnections && p.cfg.HTTP2 && slices.ContainsFunc(p.conns, full) {
		e.Reason = StreamLimit
		e.Err = fmt.Errorf("%d connections carry all the streams that the endpoint allows, and the cluster may have no further connection", len(p.conns))
	}
	return e
}

// ready waits for the settings of a new HTTP/2 connection, without which its
// limit of streams is not known, and takes its first place.
func (p *Pool) ready(ctx context.Context, c *conn) error {
	fail := func(r Reason, text string) error {
		return &Error{Reason: r, NextHop: p.cfg.Address, Unsent: true, Unanswered: true, Err: errors.New(text)}
	}
	if p.cfg.HTTP2 {
		timer := time.NewTimer(p.cfg.ConnectTimeout)
		defer timer.Stop()
		select {
		case <-c.tcp.begun:
		case <-timer.C:
			return fail(ConnectTimeout, "connected, but no HTTP/2 settings came in time")
		case <-ctx.Done():
			return dialError(ctx, p.cfg.Address, ctx.Err())
		}
	}
	defer c.tcp.preface.over.Store(true)
	switch {
	case (!p.cfg.HTTP2 || !c.tcp.broken) && c.Reserve() == nil:
		return nil
	case c.tcp.preface.goAway.Load():
		return fail(ConnectFailed, "connected, and told to go away")
	case c.Err() == nil && p.cfg.HTTP2 && !c.tcp.ended.Load():
		return fail(StreamLimit, "the endpoint allows no stream on a new connection")
	case c.tcp.preface.settings.Load() && c.tcp.ended.Load():
		return fail(ConnectFailed, "connected, and closed after the settings")
	case c.tcp.read.Load() > 0:
		return fail(ProtocolError, "what came on a new connection is not HTTP/2")
	}
	return fail(ConnectFailed, "connected, and closed before the first answer")
}

// changed is the state hook of c: it may be called from anywhere in net/http,
// once at a time for each connection.
func (p *Pool) changed(c *conn) {
	dead := c.Err() != nil
	room, idle := c.Available() > 0, c.InFlight() == 0
	p.mu.Lock()
	// An HTTP/2 connection that is idle and has no room has been told to go away.
	drop := dead || idle && (p.retired || p.cfg.HTTP2 && !room)
	if drop {
		p.remove(c)
	} else if room {
		c.busy = false
		c.used = time.Now()
		if !p.cfg.HTTP2 && p.reap == nil && !p.retired {
			p.reap = time.AfterFunc(p.cfg.IdleTimeout, p.reapIdle)
		}
	}
	p.mu.Unlock()
	if drop && !dead {
		_ = c.Close()
	}
}

// remove needs mu.
func (p *Pool) remove(c *conn) {
	if i := slices.Index(p.conns, c); i >= 0 {
		p.conns = slices.Delete(p.conns, i, i+1)
	}
	if len(p.conns) == 0 && p.reap != nil {
		p.reap.Stop()
		p.reap = nil
	}
}

func (p *Pool) forget(c *conn) {
	p.mu.Lock()
	p.remove(c)
	p.mu.Unlock()
}

// reapIdle closes what has been idle for the idle timeout.
func (p *Pool) reapIdle() {
	p.mu.Lock()
	p.reap = nil
	old := time.Now().Add(-p.cfg.IdleTimeout)
	victims := p.takeIdle(func(c *conn) bool { return !c.used.After(old) })
	if len(p.conns) > 0 && !p.retired {
		p.reap = time.AfterFunc(p.cfg.IdleTimeout, p.reapIdle)
	}
	p.mu.Unlock()
	closeAll(victims)
}

// takeIdle removes the connections that carry nothing and match. It needs mu.
func (p *Pool) takeIdle(match func(*conn) bool) []*conn {
	var taken []*conn
	p.conns = slices.DeleteFunc(p.conns, func(c *conn) bool {
		if c.busy || c.InFlight() > 0 || !match(c) {
			return false
		}
		taken = append(taken, c)
		return true
	})
	return taken
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}
