package relay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Exchange is one request and what becomes of it. Its methods are for the
// goroutine of Handler.Serve, but for ReadBody and StopBody, and for what CancelFunc gives. A connection has one, which
// is used for one request after another.
//
//	unanswered ── Relay, WriteHead ──▶ answering ──▶ answered ──▶ the next request, or the end
//	    │   └──── Respond, Switch, Connect ────────────▲
//	    └── any failure of the client's connection, or of what was begun ──▶ broken ──▶ the end
type Exchange struct {
	c    *Server
	req  http1.Request
	body body
	ctx  *requestContext

	mu sync.Mutex // guards seq, which only this goroutine changes, and ctx against a cancel that comes late
	// seq counts the requests of the connection that have ended.
	seq uint64
	// cause is why the request was cancelled; nil while it is not.
	cause atomic.Pointer[error]
	// up is the connection that the request is on, for interrupt; conn the same for this goroutine.
	up   atomic.Pointer[Conn]
	conn *Conn

	deadline instant
	// state is how far the answer is.
	state answerState
	// ahead: the client has sent more than the request, which hides whether it goes.
	ahead bool
	// last: the connection ends with this answer, which says so.
	last bool
	// interims counts the 1xx responses that the client was sent; continued: 100 was one of them.
	interims  int
	continued bool
	// framing is how the answer's body goes out, left what is still to come of it where its length is known.
	framing http1.Framing
	left    int64
	// bodied: a body goes with it, be it an empty one.
	bodied bool
	// own: the answer is made here.
	own bool
	// head is the answer's head that is still to be written.
	head []byte
	// done is told when the endpoint's part is over; nil for nobody.
	done func()
	// sent counts the bytes of its body that went to the client.
	sent int64
	// response decodes the body that the endpoint sends, and has its trailers.
	response http1.Chunked
}

// answerState is how far the answer is.
type answerState uint8

const (
	unanswered answerState = iota
	// answering: the head of the answer is out.
	answering
	answered
	// broken: the connection cannot go on.
	broken
)

// begin makes ready for the request whose head was read.
func (x *Exchange) begin() {
	if x.cause.Load() != nil {
		x.cause.Store(nil)
	}
	x.deadline, x.state, x.last, x.own = 0, unanswered, false, false
	x.interims, x.continued, x.sent, x.head = 0, false, 0, nil
	if x.ctx == nil {
		x.ctx = &requestContext{x: x, parent: x.c.ctx}
	}
	// Most answers have no trailers, and none may pass for those of the last one.
	if len(x.response.Trailers()) > 0 {
		x.response.Reset()
	}
	x.body.begin()
	x.ahead = len(x.c.in.data()) > 0
}

// end finishes the request, and tells whether another one may follow on the connection.
func (x *Exchange) end() bool {
	x.body.stop()
	x.drop()
	x.ctx.stopWatching()
	// What would cancel this request has no hold on the next one.
	x.mu.Lock()
	x.seq++
	x.mu.Unlock()
	if x.ctx.end(context.Canceled) {
		// Somebody may still look at it.
		x.ctx = nil
	} else {
		x.ctx.cause, x.ctx.deadline = nil, time.Time{}
	}
	whole := x.body.whole()
	x.body.end()
	switch {
	case x.state != answered:
		if x.state != unanswered && !x.framing.Chunked && !x.framing.Length {
			// The client would take the end of the connection for that of the body.
			x.reset()
		}
		return false
	case x.c.cutBy.Load() != nil:
		return false
	case !whole || x.last:
		// The client may send, and have sent, more: the rest of the body, or requests that follow it.
		x.c.linger()
		return false
	}
	return true
}

// reset has the connection's end be a reset.
func (x *Exchange) reset() {
	if l, ok := x.c.sock.Conn.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
}

// Request is the head of the request; who changes it sets its field Changed.
func (x *Exchange) Request() *http1.Request { return &x.req }

// Context ends with the request, with its deadline, and when it is cancelled, its connection cut, or its client goes.
func (x *Exchange) Context() context.Context { return x.ctx }

// SetDeadline bounds the whole request: Send and Relay fail with the reason Deadline after it.
func (x *Exchange) SetDeadline(t time.Time) {
	x.deadline = at(t)
	x.ctx.until(t)
}

// CancelFunc gives a function that ends the request for a cause; it may be called at any time, from anywhere.
func (x *Exchange) CancelFunc() context.CancelCauseFunc {
	seq, ctx := x.seq, x.ctx
	return func(cause error) { x.cancelFor(seq, ctx, cause) }
}

// cancelFor ends the request of that number and context, if it is the present one.
func (x *Exchange) cancelFor(seq uint64, ctx *requestContext, cause error) {
	x.mu.Lock()
	mine := x.seq == seq && x.cause.CompareAndSwap(nil, &cause)
	if mine {
		ctx.end(cause)
	}
	x.mu.Unlock()
	if mine {
		x.interrupt()
	}
}

// interrupt wakes all that waits for the request.
func (x *Exchange) interrupt() {
	x.c.sock.wake()
	if up := x.up.Load(); up != nil {
		up.sock.wake()
	}
}

// cancelled is why the request must end; nil while it need not.
func (x *Exchange) cancelled() error {
	err := x.cause.Load()
	if err == nil {
		err = x.c.cutBy.Load()
	}
	if err == nil {
		return nil
	}
	e := &upstream.Error{Reason: upstream.ClientGone, Err: *err}
	if found, ok := errors.AsType[*upstream.Error](*err); ok {
		e.Reason, e.Err = found.Reason, found.Err
	}
	return e
}

// CloseAfter makes the answer the last of its connection; it is called before Relay or Respond.
func (x *Exchange) CloseAfter() { x.last = true }

// Replayable tells whether the request can be sent again: the body is kept from its beginning, or there is none, and
// the client has seen nothing of an answer.
func (x *Exchange) Replayable() bool {
	return !x.body.lost.Load() && x.interims == 0 && x.state == unanswered
}

// BodyComplete tells whether the client has sent all of the request.
func (x *Exchange) BodyComplete() bool { return x.body.complete.Load() }

// Received is how many bytes of the request's body came from the client.
func (x *Exchange) Received() int64 { return x.body.received.Load() }

// Sent is how many bytes of the answer's body went to the client.
func (x *Exchange) Sent() int64 { return x.sent }

// fail makes an error of what a wait or a write ended with.
func (x *Exchange) fail(reason upstream.Reason, err error) *upstream.Error {
	e := &upstream.Error{Reason: reason, Err: err}
	if x.conn != nil {
		e.NextHop = x.conn.pool.cfg.Address
	}
	return e
}

// release gives the connection upstream back, or closes it if it is broken.
func (x *Exchange) release() {
	if c := x.conn; c != nil {
		x.up.Store(nil)
		x.conn = nil
		c.Release()
	}
}

// drop closes the connection upstream, if there is one still.
func (x *Exchange) drop() {
	if x.conn != nil {
		x.conn.broken = true
		x.release()
	}
}
