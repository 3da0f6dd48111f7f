package http2

import (
	"context"
	"errors"
	"sync"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Answering is a client's request that a goroutine answers, which may wait:
// for what does not go on as frames, like a tunnel, or an endpoint of HTTP/1.1. It is the
// Opener of a Decision.
//
// One goroutine may read while another writes. What neither has taken is bounded by the stream's window, and by writeAhead.
type Answering struct {
	// set once
	begin  func()
	ctx    context.Context //nolint:containedctx // the request's: it ends with what is held here
	cancel context.CancelCauseFunc
	// set by Open, before begin
	near  Near
	token uint64

	// readable and writable wake who waits for them.
	readable, writable chan struct{}

	// owned by who reads: what ReadBody gave last
	part []byte
	// owned by who writes
	turn  Turn
	ended bool

	mu sync.Mutex // guards all below; taken with the connection's lock held, nothing is called under it
	// body is what came and nobody has read; whole: no more will come. trailers ended it.
	body     queue
	whole    bool
	trailers []message.Field
	// ahead is how much was written and has not left.
	ahead int
}

// writeAhead is how much of a body a goroutine writes ahead of what could be sent: then it waits. It bounds an Asking's, too.
const writeAhead = 64 << 10

// NewAnswering makes one; begin is called when the request can be answered, and must begin a goroutine. The
// request's context, which ends when the client gives it up, comes from ctx.
func NewAnswering(ctx context.Context, begin func()) *Answering {
	a := &Answering{begin: begin, readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	return a
}

// Context ends when the client gives the request up, with an *upstream.Error as cause, or with Close.
func (a *Answering) Context() context.Context { return a.ctx }

// ReadBody gives the next part of the request's body, which is valid until the next call, and nothing at its
// end. An error is the cause of the context's end, or ctx's.
func (a *Answering) ReadBody(ctx context.Context) ([]byte, error) {
	if n := len(a.part); n > 0 {
		a.part = nil
		a.mu.Lock()
		a.body.skip(n)
		a.mu.Unlock()
		var t Turn
		a.near.Consumed(&t, a.token, n)
		t.flush()
	}
	for {
		a.mu.Lock()
		if a.body.size > 0 {
			a.part = a.body.peek(chunkSize)
		}
		whole := a.whole
		a.mu.Unlock()
		if len(a.part) > 0 || whole {
			return a.part, nil
		}
		select {
		case <-a.readable:
		case <-a.ctx.Done():
			return nil, context.Cause(a.ctx) //nolint:contextcheck // the request's own
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Complete tells whether all of the request's body has come.
func (a *Answering) Complete() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.whole
}

// Trailers are those of the request, after ReadBody gave nothing.
func (a *Answering) Trailers() []message.Field {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.trailers
}

// WriteHead sends a head, which it does not keep. end: nothing follows.
func (a *Answering) WriteHead(m *message.Response, end bool) {
	a.ended = end
	a.near.Response(&a.turn, a.token, m, end)
	a.turn.flush()
}

// Reply sends a whole answer, whatever else becomes of the request.
func (a *Answering) Reply(m *message.Response, body string) {
	a.WriteHead(m, body == "")
	if body != "" {
		a.ended = true
		a.near.Data(&a.turn, a.token, []byte(body), true)
		a.turn.flush()
	}
}

// Write sends a part of the body. An error is the cause of the context's end.
func (a *Answering) Write(p []byte) (int, error) { return a.WriteWithin(a.ctx, p) }

// WriteWithin is Write, and waits no longer than until ctx ends, the cause of which is an error too.
func (a *Answering) WriteWithin(ctx context.Context, p []byte) (int, error) {
	done := 0
	for done < len(p) {
		room, err := a.room(ctx)
		if err != nil {
			return done, err
		}
		n := min(room, len(p)-done)
		a.mu.Lock()
		a.ahead += n
		a.mu.Unlock()
		left := a.near.Data(&a.turn, a.token, p[done:done+n], false)
		(*answeringFar)(a).Consumed(nil, a.token, left)
		a.turn.flush()
		done += n
	}
	return done, nil
}

// room waits until something can be written.
func (a *Answering) room(ctx context.Context) (int, error) {
	for {
		if a.ctx.Err() != nil {
			return 0, context.Cause(a.ctx) //nolint:contextcheck // the request's own
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		a.mu.Lock()
		n := writeAhead - a.ahead
		a.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		select {
		case <-a.writable:
		case <-a.ctx.Done():
		case <-ctx.Done():
		}
	}
}

// Finish ends the answer.
func (a *Answering) Finish(trailers []message.Field) {
	if a.ended {
		return
	}
	a.ended = true
	if len(trailers) > 0 {
		a.near.Trailers(&a.turn, a.token, trailers)
	} else {
		a.near.Data(&a.turn, a.token, nil, true)
	}
	a.turn.flush()
}

// Abort breaks the answer off because of e.
func (a *Answering) Abort(e *upstream.Error) {
	a.ended = true
	var t Turn
	a.near.Failed(&t, a.token, e)
	t.flush()
}

// Stop ends the context, so that nobody waits. It may be called from any goroutine.
func (a *Answering) Stop() { a.cancel(nil) }

// Close ends the request after its answer: the client need not send the rest. It must be called.
func (a *Answering) Close() {
	if !a.ended || !a.Complete() {
		a.Abort(&upstream.Error{Reason: upstream.ClientGone, Err: errNotFinished})
	}
	a.cancel(nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.whole = true
	// Whoever still reads holds a part of it.
	if len(a.part) == 0 {
		a.body.drop()
	}
}

var errNotFinished = errors.New("the answer was not finished")

// Open implements Opener.
func (a *Answering) Open(_ *Turn, near Near, token uint64, _ *message.Request, end, _ bool) (Far, uint64, error) {
	a.near, a.token, a.whole = near, token, end
	a.begin()
	return (*answeringFar)(a), token, nil
}

// Cancel implements Opener: nothing ever waits.
func (a *Answering) Cancel(Near, uint64) {}

// answeringFar is an Answering as its Far.
type answeringFar Answering

// Data implements Far.
func (a *answeringFar) Data(_ *Turn, _ uint64, p []byte, end bool) int {
	a.mu.Lock()
	a.body.push(p)
	a.whole = a.whole || end
	a.mu.Unlock()
	wake(a.readable)
	return 0
}

// Trailers implements Far.
func (a *answeringFar) Trailers(_ *Turn, _ uint64, fields []message.Field) {
	a.mu.Lock()
	a.trailers, a.whole = append([]message.Field(nil), fields...), true
	a.mu.Unlock()
	wake(a.readable)
}

// Consumed implements Far.
func (a *answeringFar) Consumed(_ *Turn, _ uint64, n int) {
	a.mu.Lock()
	a.ahead -= n
	a.mu.Unlock()
	wake(a.writable)
}

// Reset implements Far.
func (a *answeringFar) Reset(_ *Turn, _ uint64, why *upstream.Error) {
	if why == nil {
		a.cancel(nil)
		return
	}
	a.cancel(why)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
