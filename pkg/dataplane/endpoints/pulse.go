package endpoints

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// beat is the pause between two signs of life of this process.
	beat = 250 * time.Millisecond
	// pause is the least time without one that is taken for a pause of the whole process.
	pause = time.Second
)

// Pulse knows when this process did not run: it was stopped, frozen, or had no
// processor. What an endpoint seemed to need meanwhile says nothing of the
// endpoint, and the answers that lay in the socket come with the timeouts that
// are due. Without it a node that slept for 8 s with one request under way would
// keep from that endpoint for a minute and a half, by the peak of its average.
//
// The zero value, and nil, know of no pause. Paused may be called from any goroutine.
type Pulse struct {
	// last is the last sign of life; nil before the first. gap is the last pause that is over.
	last atomic.Pointer[time.Time]
	gap  atomic.Pointer[gap]
}

// gap is a pause. Times are monotonic (package time).
type gap struct{ from, to time.Time }

// Run gives signs of life until ctx ends.
func (p *Pulse) Run(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		p.beat(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *Pulse) beat(now time.Time) {
	if last := p.last.Load(); last != nil && now.Sub(*last) >= pause {
		p.gap.Store(&gap{*last, now})
	}
	p.last.Store(&now)
}

// Paused is for how long of the time between from and now the process did not
// run, as far as the last pause tells; 0 for pauses under 1 s. It knows of one
// that has just ended, whoever runs first after it.
func (p *Pulse) Paused(from, now time.Time) time.Duration {
	if p == nil {
		return 0
	}
	last := p.last.Load()
	if last == nil {
		return 0
	}
	if now.Sub(*last) >= pause {
		return within(gap{*last, now}, from, now)
	}
	if g := p.gap.Load(); g != nil {
		return within(*g, from, now)
	}
	return 0
}

// within is how much of a gap lies between two times.
func within(g gap, from, to time.Time) time.Duration {
	if from.Before(g.from) {
		from = g.from
	}
	if g.to.Before(to) {
		to = g.to
	}
	return max(to.Sub(from), 0)
}
