package http2

import (
	"errors"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/linger"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// quit ends a connection that is not needed, with a GOAWAY. It needs mu.
func (c *endpointConn) quit(t *Turn) {
	if c.failure != nil {
		return
	}
	c.failure = errClosed
	c.vacate()
	c.send(t, appendGoAway(c.put().b, 0, http2.ErrCodeNo, ""))
	t.add(parting{&c.link})
}

// vacater is a connection with a place in a limit, which it gives back when it is closed, or by Vacate before that.
type vacater interface{ Vacate() }

// vacate gives the connection's place to another one: this one carries nothing any more, and is being closed.
func (c *endpointConn) vacate() {
	if v, ok := c.nc.(vacater); ok {
		v.Vacate()
	}
}

// leave takes no new calls and closes the connection when those on it have ended.
func (c *endpointConn) leave() {
	var t Turn
	c.locked(func() {
		c.leaving = true
		if len(c.calls) == 0 {
			c.quit(&t)
		}
	})
	t.flush()
}

// quitIfIdle closes the connection unless something is on it, and tells whether it did; not where it was being closed.
func (c *endpointConn) quitIfIdle() (quits bool) {
	var t Turn
	c.locked(func() {
		if len(c.calls) == 0 && c.ready && c.failure == nil && !c.dead {
			quits, c.leaving = true, true
			c.quit(&t)
		}
	})
	t.flush()
	return quits
}

// idleTime is how long a connection may be without calls.
const idleTime = time.Minute

// tick implements side: it ends a connection that carries nothing, and calls whose endpoint does not read. It needs mu.
func (c *endpointConn) tick(t *Turn) error {
	if len(c.calls) == 0 {
		if c.idleFor += c.tickEvery(); c.idleFor >= idleTime {
			c.leaving = true
			return &ConnError{Code: http2.ErrCodeNo, Text: "idle"}
		}
		return nil
	}
	c.idleFor = 0
	for _, k := range c.calls {
		limit := c.cfg.StallTimeout
		if k.answeredAll {
			// An endpoint that does not want the rest ought to say so (RFC 9113 section 8.1); nobody waits for it.
			limit = min(limit, linger.Silence)
		}
		if c.stall(&k.flow, limit) {
			t.add(failing{k.near, k.nearToken, &upstream.Error{
				Reason: upstream.ResetBeforeHeaders, NextHop: c.address, Unanswered: !k.heard,
				Err: errors.New("the endpoint does not read the request"),
			}})
			c.cancel(t, k, http2.ErrCodeCancel)
		}
	}
	return nil
}

// failing tells a Near that its call failed, when no lock is held.
type failing struct {
	near  Near
	token uint64
	err   *upstream.Error
}

// Flush tells it.
func (f failing) Flush(t *Turn) { f.near.Failed(t, f.token, f.err) }
