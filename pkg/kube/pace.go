package kube

import (
	"sync"
	"time"
)

// pace is how fast the server, and this machine, have shown themselves to be. What
// is waited for is waited for longer where they are slow, so that slowness is not taken for a fault:
//
//	an answer   twice the slowest of late, and half an interval at most
//	a change    the grace and four times the slowest of late, and half an interval at most
//
// The slowest of late is forgotten by half with every faster answer. A request that was given up counts with its limit, so
// that a server which takes longer than that is given twice as long the next time.
type pace struct {
	mu sync.Mutex // guards all below
	// slowest is the slowest answer of late.
	slowest time.Duration
}

// answered notes how long an answer took, or how long it was waited for in vain.
func (p *pace) answered(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slowest = max(took, p.slowest/2)
}

func (p *pace) recent() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slowest
}

// limit is how long an answer is waited for, where it is base on a fast server.
func (p *pace) limit(base, interval time.Duration) time.Duration {
	return max(base, min(2*p.recent(), interval/2))
}

// grace is how long a change may be on its way, where it is base on a fast server.
func (p *pace) grace(base, interval time.Duration) time.Duration {
	return max(base, min(base+4*p.recent(), interval/2))
}

// quiet does something when nothing is heard for long. A timer that fires much
// later than it should shows that this machine did not get to run: what was heard meanwhile is still to be read then, so it waits once more.
type quiet struct {
	// set once
	do    func()
	again time.Duration

	mu    sync.Mutex // guards all below
	timer *time.Timer
	// due is when it is to be done; zero once it is not, or has been done.
	due time.Time
}

// newQuiet does do unless something is heard within the patience; again is for how long it waits
// where it was late by half of that.
func newQuiet(patience, again time.Duration, do func()) *quiet {
	q := &quiet{do: do, again: again, due: time.Now().Add(patience)}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer = time.AfterFunc(patience, q.fire)
	return q
}

// heard begins the patience anew, unless it is over.
func (q *quiet) heard(patience time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.due.IsZero() {
		q.due = time.Now().Add(patience)
		q.timer.Reset(patience)
	}
}

func (q *quiet) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due = time.Time{}
	q.timer.Stop()
}

func (q *quiet) fire() {
	if q.over(time.Now()) {
		q.do()
	}
}

// over tells whether it is to be done now.
func (q *quiet) over(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	late := now.Sub(q.due)
	switch {
	case q.due.IsZero():
		return false
	case late < 0: // something was heard as it fired
		q.timer.Reset(-late)
		return false
	case late > q.again/2:
		q.due = now.Add(q.again)
		q.timer.Reset(q.again)
		return false
	}
	q.due = time.Time{}
	return true
}
