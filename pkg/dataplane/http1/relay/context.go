package relay

import (
	"context"
	"sync"
	"time"
)

// requestContext is the context of one request, which becomes a real one only
// when somebody waits on it: most requests have one and nobody does.
type requestContext struct {
	parent   context.Context //nolint:containedctx // it is a context itself
	deadline time.Time

	mu     sync.Mutex // guards all below
	cause  error
	whole  context.Context //nolint:containedctx // as above
	cancel context.CancelCauseFunc
	stop   context.CancelFunc
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
		}
	}
	return c.whole
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
	return true
}
