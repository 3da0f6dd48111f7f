package endpoints

import (
	"math/rand/v2"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 30 * time.Second
	// aloneBackoff is the longest back-off while no endpoint is usable: a trial
	// then costs one dial, and a longer wait would prolong the outage.
	aloneBackoff = time.Second
	// distrustAfter is how many failures of one endpoint in a row make the
	// data plane doubt what discovery told it.
	distrustAfter = 3
)

// ejection is the state machine of the package comment, without I/O.
// The zero value is usable.
type ejection struct {
	// failures in a row; 0 means usable.
	failures int
	// at is when the last failure was counted, until when the next trial may
	// begin, and alone when it may while no endpoint is usable.
	at, until, alone time.Time
	onTrial          bool
	reason           upstream.Reason
}

func (e *ejection) ejected() bool { return e.failures > 0 }

// fail counts a dial that began at began and failed at now, and ends a trial.
// It gives false for a dial that began before the last failure was counted: a
// burst of dials to an endpoint that died is one failure, not many.
func (e *ejection) fail(began, now time.Time, reason upstream.Reason) bool {
	if e.ejected() && !began.After(e.at) {
		return false
	}
	e.failures++
	e.onTrial = false
	e.reason = reason
	e.at = now
	e.until = now.Add(jittered(backoff(e.failures)))
	e.alone = now.Add(jittered(min(backoff(e.failures), aloneBackoff)))
	return true
}

// postpone ends a trial that told nothing; the next one may begin after a pause.
func (e *ejection) postpone(now time.Time) {
	e.onTrial = false
	e.until = now.Add(jittered(firstBackoff))
	e.alone = e.until
}

// succeed makes the endpoint usable after a dial that began at began; it tells
// whether it was not. A dial from before the failure proves nothing.
func (e *ejection) succeed(began time.Time) bool {
	if !e.ejected() || !began.After(e.at) {
		return false
	}
	*e = ejection{}
	return true
}

// dueAt is when a trial of an ejected endpoint may begin; none tells that no
// endpoint of the cluster is usable.
func (e *ejection) dueAt(none bool) time.Time {
	if none && e.alone.Before(e.until) {
		return e.alone
	}
	return e.until
}

// due tells whether a trial may begin at now.
func (e *ejection) due(now time.Time, none bool) bool {
	return e.ejected() && !e.onTrial && !now.Before(e.dueAt(none))
}

// backoff is the wait after so many failures in a row, before jitter.
func backoff(failures int) time.Duration {
	d := firstBackoff
	for range failures - 1 {
		d = min(2*d, maxBackoff)
	}
	return d
}

// jittered takes up to a quarter off, so that the cap holds.
func jittered(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}
