package proxy

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Tracker knows what is in flight, and whether the proxy is draining. All methods may be called from any goroutine. Its
// owner ends what is left in three steps, each of which leaves less:
//
//	Drain: clients are told to go ──WaitQuiet──▶ Expire: answered or broken off, with a reason ──▶ Abort: closed
type Tracker struct {
	// Spread is the most time over which Drain tells connections to go; 0 tells all at once. Set once.
	Spread  time.Duration
	metrics *Metrics
	// over ends with Expire; what serves connections derives from it.
	over   context.Context //nolint:containedctx // the tracker is what ends it
	expire context.CancelCauseFunc

	draining atomic.Bool
	active   atomic.Int64

	mu sync.Mutex // guards all below
	// turns are the connections that wait for their turn to go.
	turns int
	// moved is closed and replaced when something begins or ends while draining.
	moved chan struct{}
	// open is what Abort closes.
	open map[io.Closer]struct{}
	// conns are the clients' HTTP connections.
	conns map[*life]struct{}
}

// NewTracker makes a tracker of nothing.
func NewTracker(m *Metrics) *Tracker {
	t := &Tracker{metrics: m, moved: make(chan struct{}), open: map[io.Closer]struct{}{}, conns: map[*life]struct{}{}}
	t.over, t.expire = context.WithCancelCause(context.Background())
	return t
}

// Draining tells whether Drain was called.
func (t *Tracker) Draining() bool { return t.draining.Load() }

// turnsPerSecond is how many connections a drain tells to go in a second,
// unless Spread is too short for that.
const turnsPerSecond = 50

// Drain tells every connection to go, one after the other over at most Spread,
// and each new one with its first request: HTTP/2 gets a GOAWAY now, HTTP/1.1
// the field Connection: close with its next response, or its end when it is
// idle. Nothing is refused and nothing in flight is disturbed.
func (t *Tracker) Drain() {
	if !t.draining.CompareAndSwap(false, true) {
		return
	}
	t.metrics.drain.Set(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.conns)
	window := min(t.Spread, time.Duration(n)*time.Second/turnsPerSecond)
	i := 0
	for c := range t.conns {
		if c.turn(window * time.Duration(i) / time.Duration(n)) {
			t.turns++
		}
		i++
	}
}

// took notes that a connection had its turn, or needs it no more.
func (t *Tracker) took() {
	t.mu.Lock()
	t.turns--
	t.wake()
	t.mu.Unlock()
}

// Active is how many requests and opaque connections are in flight.
func (t *Tracker) Active() int { return int(t.active.Load()) }

// begin gives how many are in flight with this one.
func (t *Tracker) begin() int64 {
	n := t.active.Add(1)
	t.stirred()
	return n
}

// end takes one off that begin counted.
func (t *Tracker) end() {
	t.active.Add(-1)
	t.stirred()
}

// stirred wakes WaitQuiet, which only a drain has.
func (t *Tracker) stirred() {
	if t.draining.Load() {
		t.mu.Lock()
		t.wake()
		t.mu.Unlock()
	}
}

// wake needs mu.
func (t *Tracker) wake() {
	close(t.moved)
	t.moved = make(chan struct{})
}

// WaitQuiet waits until nothing has been in flight for quiet and every
// connection had its turn, or until ctx ends, whose error it gives. Call it after Drain.
func (t *Tracker) WaitQuiet(ctx context.Context, quiet time.Duration) error {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		t.mu.Lock()
		busy, moved := t.active.Load() > 0 || t.turns > 0, t.moved
		t.mu.Unlock()
		var over <-chan time.Time
		if !busy {
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

// Expire ends what is in flight with the reason Draining: requests without an
// answer get one, everything else breaks off.
func (t *Tracker) Expire() {
	t.expire(&upstream.Error{Reason: upstream.Draining, Err: errors.New("the drain time of this proxy is over")})
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

// Abort closes every connection.
func (t *Tracker) Abort() {
	t.Expire()
	t.mu.Lock()
	all := make([]io.Closer, 0, len(t.open)+len(t.conns))
	for c := range t.open {
		all = append(all, c)
	}
	for c := range t.conns {
		all = append(all, c)
	}
	t.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}
