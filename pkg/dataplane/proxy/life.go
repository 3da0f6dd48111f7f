package proxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/capture"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxyproto"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// life is what is common to clients' HTTP connections, whatever they speak. Each goes through
//
//	serving ──told to go──▶ leaving ──its requests have ended, and a second without another──▶ closed
//	                           └──end of the grace or of the drain──▶ cut ──answerTime, or Tracker.Abort──▶ closed
//
// It is embedded in http1Conn and http2Conn. Who serves the connection, timers and Tracker call it, from any goroutine.
type life struct {
	// set once
	speaker
	to      *route // where a captured connection was going; nil for others
	tracker *Tracker
	remote  string
	ends    proxyproto.Header // of the client's connection, as a PROXY header says them
	hash    uint64            // of the client's address, for affinity
	ctx     context.Context   //nolint:containedctx // the connection's own: it ends what is on it
	cut     context.CancelCauseFunc

	mu      sync.Mutex // guards all below
	leaving bool
	closed  bool
	// waiting: Tracker counts it among those that wait for their turn.
	waiting bool
	// late: it came during a drain, and will be told.
	late bool
	// timers are those that may have to be stopped; there are few in the life of a connection.
	timers []*time.Timer
}

// speaker is what a connection does in its protocol.
type speaker interface {
	io.Closer
	// tell tells the client to go. It is called once.
	tell()
	// leaveSoon follows the first request that came on a new connection during a drain: it calls life.leave, now or soon.
	leaveSoon()
}

// answerTime is how long a connection that is cut gets to write the answers that say so.
const answerTime = time.Second

// init sets up what is set once; s is the connection that c is part of.
func (c *life) init(t *Tracker, a arrival, s speaker) {
	c.speaker, c.to, c.tracker = s, a.to, t
	c.remote = a.RemoteAddr().String()
	c.hash = clientHash(c.remote)
	c.ends = proxyproto.Header{Source: capture.AddrPort(a.RemoteAddr()), Destination: capture.AddrPort(a.LocalAddr())}
	if a.to != nil {
		c.ends.Destination = a.to.original
	}
	c.ctx, c.cut = context.WithCancelCause(t.over)
}

// enter takes a connection on the books; false after Abort.
func (t *Tracker) enter(c *life) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over.Err() != nil {
		return false
	}
	t.conns[c] = struct{}{}
	return true
}

// after calls f after d unless the connection has ended.
func (c *life) after(d time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.timers = append(c.timers, time.AfterFunc(d, f))
	}
}

// limitAge tells the connection to go at the age of about maxAge, and cuts it
// when the grace is over; 0 is no limit. Ages differ by a tenth, so that
// connections that came together do not go together.
func (c *life) limitAge(maxAge, grace time.Duration) {
	if maxAge <= 0 {
		return
	}
	c.after(about(maxAge), func() {
		c.leave()
		c.after(grace, func() {
			c.cut(&upstream.Error{Reason: upstream.ConnectionAge, Err: errors.New("the connection has reached its greatest age, and the grace is over")})
			c.after(answerTime, func() { _ = c.Close() })
		})
	})
}

// about gives d, or up to a tenth less or more.
func about(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64()))
}

// turn makes the connection leave after d; false when it has ended.
func (c *life) turn(d time.Duration) bool {
	c.mu.Lock()
	open := !c.closed
	c.waiting = open
	c.mu.Unlock()
	c.after(d, c.leave)
	return open
}

// leave tells the client to go, once.
func (c *life) leave() {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = false
	told := c.leaving
	c.leaving = true
	c.mu.Unlock()
	if waiting {
		c.tracker.took()
	}
	if !told {
		c.tell()
	}
}

// requested notes a request. After one that came on a new connection during a drain its client is told to go.
func (c *life) requested() {
	if !c.tracker.Draining() {
		return
	}
	c.mu.Lock()
	tell := !c.leaving && !c.waiting && !c.late
	c.late = c.late || tell
	c.mu.Unlock()
	if tell {
		c.leaveSoon()
	}
}

// told tells whether the client is to go.
func (c *life) told() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaving
}

// ended takes a connection that has ended out of the books, once.
func (c *life) ended() {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting, c.closed = false, true
	timers := c.timers
	c.timers = nil
	c.mu.Unlock()
	for _, t := range timers {
		t.Stop()
	}
	if waiting {
		c.tracker.took()
	}
	c.cut(nil)
	c.tracker.mu.Lock()
	delete(c.tracker.conns, c)
	c.tracker.mu.Unlock()
}

// noWait is a context that is over: who is asked with it must not wait.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
