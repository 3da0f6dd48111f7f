package proxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// conn is a client's HTTP connection on its way through
//
//	serving ──told to go──▶ leaving ──nothing in flight for settle──▶ closed
//	                           └──end of the grace or of the drain──▶ cut, closed
//
// An HTTP/2 client that is told gets a GOAWAY that names no stream (RFC 9113
// section 6.8), so that what it has under way to us is served; net/http, which
// can only name the last stream that it has seen, sends its own at the end.
type conn struct {
	*net.TCPConn
	// set once; server and limits before the connection is served
	under   net.Conn // TCPConn, with what a listener of ours keeps of it
	to      *route   // where a captured connection was going; nil for others
	limits  *Limits
	came    time.Time
	tracker *Tracker
	server  *http.Server
	ctx     context.Context //nolint:containedctx // the connection's own: it ends what is on it
	cut     context.CancelCauseFunc

	// head has been read already, and comes before the rest; its reader owns it.
	head []byte

	// http2 is true once the connection has shown to be HTTP/2.
	http2 atomic.Bool
	// goAway wants a GOAWAY written as soon as no frame is half written.
	goAway atomic.Bool

	wmu    sync.Mutex // guards frames, and writing frames of ours between those of net/http
	frames frames

	mu     sync.Mutex // guards all below
	active int
	// served: a request has come.
	served  bool
	leaving bool
	closed  bool
	// waiting: Tracker counts it among those that wait for their turn.
	waiting bool
	// late: it came during a drain, and will be told.
	late bool
	// idle is since when nothing is in flight, or when it was told to go if that was later.
	idle time.Time
	// timers are those that may have to be stopped; there are few in the life of a connection.
	timers []*time.Timer
	// quitting calls quit; nil before it was set.
	quitting *time.Timer
}

// settle is for how long nothing must have come on a connection that is
// leaving: what its client sent before it knew is served.
const settle = time.Second

// Socket is the connection itself, to look at and not to use.
func (c *conn) Socket() *net.TCPConn { return c.TCPConn }

func newConn(t *Tracker, a arrival) *conn {
	now := time.Now()
	c := &conn{TCPConn: a.tcp, under: a.Conn, head: a.head, to: a.to, tracker: t, came: now, idle: now}
	c.ctx, c.cut = context.WithCancelCause(t.over)
	return c
}

// enter gives false after Abort.
func (t *Tracker) enter(c *conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over.Err() != nil {
		return false
	}
	t.conns[c] = struct{}{}
	return true
}

// after calls f after d unless the connection has ended.
func (c *conn) after(d time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.timers = append(c.timers, time.AfterFunc(d, f))
	}
}

// limitAge tells the connection to go at the age of about maxAge, and cuts it
// when the grace is over; 0 is no limit. Ages differ by a tenth, so that
// connections that came together do not go together.
func (c *conn) limitAge(maxAge, grace time.Duration) {
	if maxAge <= 0 {
		return
	}
	c.after(about(maxAge), func() {
		c.leave()
		c.after(grace, func() {
			c.cut(&upstream.Error{Reason: upstream.ConnectionAge, Err: errors.New("the connection has reached its greatest age, and the grace is over")})
			// What has an answer to write gets the time for it.
			c.after(settle, func() { _ = c.Close() })
		})
	})
}

// about gives d, or up to a tenth less or more.
func about(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64()))
}

// turn makes the connection leave after d; false when it has ended.
func (c *conn) turn(d time.Duration) bool {
	c.mu.Lock()
	open := !c.closed
	c.waiting = open
	c.mu.Unlock()
	c.after(d, c.leave)
	return open
}

// leave tells the client to go, once.
func (c *conn) leave() {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = false
	told := c.leaving
	c.leaving = true
	if !told {
		c.idle = time.Now()
	}
	c.mu.Unlock()
	if waiting {
		c.tracker.took()
	}
	if !told {
		c.goAway.Store(true)
		c.say()
		c.quitLater(settle)
	}
}

func (c *conn) quitLater(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
	case c.quitting == nil:
		c.quitting = time.AfterFunc(d, c.quit)
	default:
		c.quitting.Reset(d)
	}
}

// quit goes on with a connection that is leaving. HTTP/2 has had the time to
// hear of it: net/http names the last stream and closes when all have ended.
// HTTP/1.1 is closed when it has been idle for settle; its next response says so otherwise.
func (c *conn) quit() {
	c.mu.Lock()
	left := settle - time.Since(c.idle)
	busy := c.active > 0
	c.mu.Unlock()
	switch {
	case c.http2.Load():
		// It does not wait, since it may not.
		_ = c.server.Shutdown(ended)
	case busy:
	case left > 0:
		c.quitLater(left)
	default:
		_ = c.Close()
	}
}

// ended is a context that is over.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// begin notes a request. One that came on a new connection during a drain is
// followed by a farewell: at once in HTTP/1.1, where it is part of the response,
// and after settle in HTTP/2, so that a client with nowhere else to go does not connect for each request.
func (c *conn) begin() {
	c.mu.Lock()
	c.active++
	c.served = true
	tell := !c.leaving && !c.waiting && !c.late && c.tracker.Draining()
	c.late = c.late || tell
	c.mu.Unlock()
	switch {
	case !tell:
	case c.http2.Load():
		c.after(settle, c.leave)
	default:
		c.leave()
	}
}

// done notes the end of a request.
func (c *conn) done() {
	c.mu.Lock()
	c.active--
	c.idle = time.Now()
	idle := c.leaving && c.active == 0
	c.mu.Unlock()
	if idle && !c.http2.Load() {
		c.quitLater(settle)
	}
}

// told tells whether the connection is to end with its next response.
func (c *conn) told() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaving
}

// state is net/http's hook.
func (c *conn) state(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed {
		c.ended()
	}
}

// Close closes the connection; net/http calls it, or who took the connection over.
func (c *conn) Close() error {
	c.judgeHeader()
	c.ended()
	return c.under.Close()
}

// judgeHeader counts a connection that net/http closes because the first header
// took too long, which it does without a word to anybody. Of later ones it tells
// only when they are over.
func (c *conn) judgeHeader() {
	if c.limits == nil {
		return
	}
	limit, _ := c.limits.header()
	c.mu.Lock()
	slow := !c.closed && !c.served && !c.leaving && !c.http2.Load() && time.Since(c.came) >= limit-limit/10
	c.mu.Unlock()
	if slow {
		c.limits.Count(upstream.HeaderTimeout)
	}
}

func (c *conn) ended() {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting, c.closed = false, true
	timers := c.timers
	if c.quitting != nil {
		timers = append(timers, c.quitting)
	}
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
