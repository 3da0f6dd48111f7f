package endpoints

import "time"

// Phase is what becomes of a request that comes to a cluster now, by whether there is an endpoint for it.
type Phase string

// The phases; the package comment has their diagram.
const (
	// Serving: an endpoint is usable.
	Serving Phase = "serving"
	// Waiting: none is, for less than the fail-fast time. Requests queue.
	Waiting Phase = "waiting"
	// FailingFast: none is, for longer. Requests fail at once, and trials go on.
	FailingFast Phase = "failing_fast"
)

// availability is the third state machine of the package comment. The zero value is serving.
type availability struct {
	// without is since when no endpoint is usable; zero while one is.
	without time.Time
	// interest is when a request last found none.
	interest time.Time
	// distrusted is when discovery was last asked again for it.
	distrusted time.Time
}

// found says at now whether an endpoint is usable.
func (a *availability) found(now time.Time, usable bool) {
	switch {
	case usable:
		a.without = time.Time{}
	case a.without.IsZero():
		a.without = now
	}
}

// none tells that no endpoint is usable.
func (a *availability) none() bool { return !a.without.IsZero() }

func (a *availability) phase(now time.Time, failFast time.Duration) Phase {
	switch {
	case !a.none():
		return Serving
	case now.Sub(a.without) < failFast:
		return Waiting
	}
	return FailingFast
}

// distrust tells whether discovery is to be asked again: at most every second.
func (a *availability) distrust(now time.Time) bool {
	if now.Sub(a.distrusted) < distrustEvery {
		return false
	}
	a.distrusted = now
	return true
}

// wanted tells whether somebody has asked lately, so that trials should go on by themselves.
func (a *availability) wanted(now time.Time) bool {
	return a.none() && now.Sub(a.interest) < interestTime
}

const (
	distrustEvery = time.Second
	// interestTime is for how long after the last request trials go on by
	// themselves: a cluster that nobody uses is not dialled for ever.
	interestTime = 10 * time.Second
	// maxTrials is how many endpoints of a cluster may be on trial at a time while none is usable.
	maxTrials = 16
)
