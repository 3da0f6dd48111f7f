package drain

import (
	"slices"
	"time"
)

// Settler keeps a drain waiting for a while after it was found to be over: what a proxy sent just before it
// acknowledged may still be on its way to the endpoint, which must not go before it has read it
// (docs/design/0010). It is not safe for concurrent use.
type Settler struct {
	// after is how long; set once.
	after time.Duration
	// calm: target → since when it is found drained, each time that it is looked at. Bounded by maxCalm.
	calm map[Target]calm
}

// calm is a target that was found drained.
type calm struct {
	since, last time.Time
	uses        []Use
}

const (
	// maxCalm bounds the targets that are remembered. Who is forgotten settles once more.
	maxCalm = 10_000
	// calmFor is how long a target is remembered that nobody asks about.
	calmFor = time.Minute
)

// NewSettler gives one that lets drains settle for a time; 0 is not at all.
func NewSettler(after time.Duration) *Settler {
	return &Settler{after: after, calm: make(map[Target]calm)}
}

// Look takes what a look at a target came to. Where it was found drained it gives since when that holds, and
// until when it has to settle; the zero times where there is nothing to wait for. A target that nothing ever
// listed has nothing on its way.
func (s *Settler) Look(t Target, drained bool, uses []Use, now time.Time) (since, until time.Time) {
	if !drained || len(uses) == 0 || s.after <= 0 {
		delete(s.calm, t)
		return time.Time{}, time.Time{}
	}
	c, ok := s.calm[t]
	if !ok || now.Sub(c.last) > calmFor || !slices.Equal(c.uses, uses) {
		c = calm{since: now, uses: slices.Clone(uses)}
		s.makeRoom(now)
	}
	c.last = now
	s.calm[t] = c
	if until = c.since.Add(s.after); !now.Before(until) {
		return time.Time{}, time.Time{}
	}
	return c.since, until
}

// makeRoom forgets who was not asked about lately, or everybody, where there are too many.
func (s *Settler) makeRoom(now time.Time) {
	if len(s.calm) < maxCalm {
		return
	}
	for t, c := range s.calm {
		if now.Sub(c.last) > calmFor {
			delete(s.calm, t)
		}
	}
	if len(s.calm) >= maxCalm {
		clear(s.calm)
	}
}
