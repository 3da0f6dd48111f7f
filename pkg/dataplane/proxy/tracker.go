package proxy

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Tracker knows what is in flight, and whether the proxy is draining.
type Tracker struct {
	draining atomic.Bool
	metrics  *Metrics

	mu     sync.Mutex // guards all below
	active int
	// moved is closed and replaced when something begins or ends while draining.
	moved chan struct{}
	// open is what Abort closes: hijacked and opaque connections.
	open map[io.Closer]struct{}
}

// NewTracker makes a tracker of nothing.
func NewTracker(m *Metrics) *Tracker {
	return &Tracker{metrics: m, moved: make(chan struct{}), open: map[io.Closer]struct{}{}}
}

// Draining tells whether Drain was called.
func (t *Tracker) Draining() bool { return t.draining.Load() }

// Drain makes every response from now on the last of its connection. Nothing
// is refused.
func (t *Tracker) Drain() {
	if t.draining.CompareAndSwap(false, true) {
		t.metrics.drain.Set(1)
	}
}

// Active is how many requests and opaque connections are in flight.
func (t *Tracker) Active() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.active
}

func (t *Tracker) begin() {
	t.mu.Lock()
	t.active++
	t.wake()
	t.mu.Unlock()
}

func (t *Tracker) end() {
	t.mu.Lock()
	t.active--
	t.wake()
	t.mu.Unlock()
}

// wake needs mu.
func (t *Tracker) wake() {
	if t.draining.Load() {
		close(t.moved)
		t.moved = make(chan struct{})
	}
}

// WaitQuiet waits until nothing has been in flight for quiet, or until ctx
// ends, whose error it gives. Call it after Drain.
func (t *Tracker) WaitQuiet(ctx context.Context, quiet time.Duration) error {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		t.mu.Lock()
		active, moved := t.active, t.moved
		t.mu.Unlock()
		var over <-chan time.Time
		if active == 0 {
			timer.Reset(quiet)
			over = timer.C
		}
		select {
		case <-moved:
		case <-over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hold notes a connection that Abort must close; the function it gives takes it off.
func (t *Tracker) hold(c io.Closer) func() {
	t.mu.Lock()
	t.open[c] = struct{}{}
	t.mu.Unlock()
	return func() {
		t.mu.Lock()
		delete(t.open, c)
		t.mu.Unlock()
	}
}

// Abort closes every connection that is held.
func (t *Tracker) Abort() {
	t.mu.Lock()
	all := make([]io.Closer, 0, len(t.open))
	for c := range t.open {
		all = append(all, c)
	}
	t.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}
