package http2

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	nc, err := p.cfg.Dial(p.ctx)
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
	p.mu.Unlock()
	c.mu.Lock()
	ready := c.ready
	c.mu.Unlock()
	if !ready {
		p.missed(p.greetError(err))
	}
}

// missed fails those who wait for a connection that could not be made, unless
// others are being made. Where there are some, they are not the ones to wait for:
// only if nobody may wait for a place on them the rest is told that they are full.
func (p *Pool) missed(e *upstream.Error) {
	var t Turn
	p.mu.Lock()
	p.dialling--
	last, some, free := p.dialling == 0, len(p.conns) > 0, p.places(1) > 0
	if p.retired {
		last, some, e = true, false, p.gone()
	}
	p.mu.Unlock()
	switch {
	case !last:
	case !some:
		p.failWaiting(&t, e)
	case free:
		// Another connection has become ready meanwhile.
		t.Add(p)
	case p.cfg.MaxWaiting < 0:
		p.mu.Lock()
		// One that is about to go takes no more either, but that is not for its streams.
		if e.Reason == upstream.BreakerConnections && slices.ContainsFunc(p.conns, (*Client).full) {
			e = p.full(len(p.queue))
		}
		p.mu.Unlock()
		p.failWaiting(&t, e)
	}
	t.End()
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
	barred := first && !retired && c.places(1) == 0 && len(p.conns) == 1
	p.mu.Unlock()
	if retired {
		c.leave()
		return
	}
	if barred {
		p.failWaiting(t, &upstream.Error{
			Reason: upstream.StreamLimit, NextHop: p.cfg.Address, Unsent: true, Unanswered: true,
			Err: errors.New("the endpoint allows no stream on a new connection"),
		})
		return
	}
	if p.wanted() {
		t.Add(p)
	}
}

func (p *Pool) failWaiting(t *Turn, e *upstream.Error) {
	p.mu.Lock()
	all := p.queue
	p.queue = nil
	p.waiters.Store(0)
	p.mu.Unlock()
	for _, w := range all {
		w.near.Failed(t, w.token, e)
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
