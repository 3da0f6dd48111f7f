package relay

import (
	"context"
	"sync"
	"time"
)

// requestContext is the context of one request, which becomes a real one only
// when somebody waits on it: most requests have one and nobody does. While it
// is a real one, a goroutine looks whether the client is still there.
type requestContext struct {
	x        *Exchange
	parent   context.Context //nolint:containedctx // it is a context itself
	deadline time.Time

	mu     sync.Mutex // guards all below
	cause  error
	whole  context.Context //nolint:containedctx // as above; the real one, nil until it is made
	cancel context.CancelCauseFunc
	stop   context.CancelFunc
	// late ends whole at a deadline that was set when there was one already; nil for none.
	late *time.Timer
	// quit ends the goroutine of watchClient, which closes looked; nil for none.
	quit, looked chan struct{}
}

// Deadline implements context.Context.
func (c *requestContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Done implements context.Context.
func (c *requestContext) Done() <-chan struct{} { return c.made().Done() }

// Err implements context.Context.
func (c *requestContext) Err() error {
	c.mu.Lock()
	lives := c.whole == nil && c.cause == nil
	c.mu.Unlock()
	if lives && c.parent.Err() == nil && (c.deadline.IsZero() || time.Now().Before(c.deadline)) {
		return nil
	}
	return c.made().Err()
}

// Value implements context.Context. Through it package context finds the cause.
func (c *requestContext) Value(key any) any {
	c.mu.Lock()
	whole := c.whole
	c.mu.Unlock()
	if whole == nil {
		whole = c.parent
	}
	return whole.Value(key)
}

// made gives the real context, and makes it if there is none yet: from now on somebody may wait on it.
func (c *requestContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.whole == nil {
		ctx, stop := c.parent, context.CancelFunc(func() {})
		if !c.deadline.IsZero() {
			ctx, stop = context.WithDeadline(ctx, c.deadline)
		}
		c.whole, c.cancel = context.WithCancelCause(ctx)
		c.stop = stop
		if c.cause != nil {
			c.cancel(c.cause)
		} else if !c.x.ahead && c.x.state == unanswered {
			c.quit, c.looked = make(chan struct{}), make(chan struct{})
			go c.watchClient(c.whole, c.x.seq, c.quit, c.looked)
		}
	}
	return c.whole
}

// watchClient cancels the request when its client goes.
func (c *requestContext) watchClient(ctx context.Context, seq uint64, quit <-chan struct{}, looked chan<- struct{}) {
	defer close(looked)
	began := now()
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-quit:
			return
		case <-timer.C:
		}
		if c.x.c.sock.hungUp() {
			c.x.cancelFor(seq, c, errGone)
			return
		}
		timer.Reset(nextLook(began, now()))
	}
}

// stopWatching ends watchClient, as the connection means something else from now on, and waits for its end.
func (c *requestContext) stopWatching() {
	c.mu.Lock()
	quit, looked := c.quit, c.looked
	c.quit, c.looked = nil, nil
	c.mu.Unlock()
	if quit != nil {
		close(quit)
		<-looked
	}
}

// until sets the deadline; it may be called when somebody waits already.
func (c *requestContext) until(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if c.whole == nil {
		return
	}
	if c.late != nil {
		c.late.Stop()
	}
	cancel := c.cancel
	c.late = time.AfterFunc(time.Until(t), func() { cancel(context.DeadlineExceeded) })
}

// end cancels it, and tells whether somebody may still hold it.
func (c *requestContext) end(cause error) (held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
	}
	if c.whole == nil {
		return false
	}
	// The cause first, or that of the deadline's timer would be kept.
	c.cancel(cause)
	c.stop()
	if c.late != nil {
		c.late.Stop()
	}
	return true
}
