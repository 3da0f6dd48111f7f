package http2

import (
	"fmt"
	"slices"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Queue counts who waits for a place. Both methods are called with locks held, and must not block.
type Queue interface {
	// Join takes a place in it; false where it is full. again: it had one just now, and gets one in any case.
	Join(again bool) bool
	// Leave gives it back.
	Leave()
}

// unbounded is a Queue without limit.
type unbounded struct{}

func (unbounded) Join(bool) bool { return true }
func (unbounded) Leave()         {}

// waiter is a request without a place.
type waiter struct {
	near    Near
	token   uint64
	patient bool
}

func everybody(waiter) bool { return true }

func impatient(w waiter) bool { return !w.patient }

// wait queues a request, and has a connection made for it where that may be. It needs mu.
func (p *Pool) wait(t *Turn, w waiter, waited bool) error {
	n := len(p.queue) + 1
	// Whoever gives a place back from now on sees that it is wanted; one that was given back before is found here.
	p.waiters.Store(int64(n))
	free := p.places(n)
	if free > 0 {
		// For those who wait already.
		t.add(p)
	}
	// It is counted before a connection is asked for: who refuses one says only to those who are when there may be one.
	counted := !w.patient || p.cfg.Queue.Join(waited)
	p.dialFor(n - free)
	hopeless := !w.patient && free < n && p.dialling == 0
	if !counted || hopeless {
		p.waiters.Store(int64(n - 1))
		return p.full()
	}
	if w.patient {
		p.patients++
	}
	if waited {
		p.queue = slices.Insert(p.queue, 0, w)
	} else {
		p.queue = append(p.queue, w)
	}
	return nil
}

// dialFor has a connection made where n requests have no place, unless enough are being made, or it would be in vain. It needs mu.
func (p *Pool) dialFor(n int) {
	switch {
	case n <= 0 || p.retired || p.enoughDialling(n):
	case p.patients > 0 && (p.atLimit || p.pause != nil):
		// Wake has one made as soon as there may be one, or resumeDials after the pause.
	case slices.ContainsFunc(p.conns, (*endpointConn).barred):
	default:
		p.dial()
	}
}

// full is the error of a request for which there is no place now: StreamLimit, unless the connections lack for another
// reason, which is that of the last dial then. It needs mu.
func (p *Pool) full() *upstream.Error {
	if p.lastMiss != nil && !slices.ContainsFunc(p.conns, (*endpointConn).full) {
		// It is not for the streams of any: those there are wind up, and no other is to be had.
		e := *p.lastMiss
		return &e
	}
	e := &upstream.Error{Reason: upstream.StreamLimit, NextHop: p.cfg.Address, Unsent: true, Unanswered: true}
	if slices.ContainsFunc(p.conns, (*endpointConn).barred) {
		e.Err = fmt.Errorf("the endpoint allows no stream on its connection now, and %s for a place", waits(p.patients))
	} else {
		e.Err = fmt.Errorf("%s all the streams that the endpoint allows, and %s for a place", carry(len(p.conns)), waits(p.patients))
	}
	return e
}

func waits(n int) string {
	if n == 1 {
		return "1 request waits"
	}
	return fmt.Sprintf("%d requests wait", n)
}

func carry(n int) string {
	if n == 1 {
		return "1 connection carries"
	}
	return fmt.Sprintf("%d connections carry", n)
}

// Late is the error of a patient request that had no place before its time was over, for that cause.
func (p *Pool) Late(cause error) *upstream.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.full()
	before := e.Err
	e.Err = fmt.Errorf("%w while waiting for a stream", cause)
	if before != nil {
		e.Err = fmt.Errorf("%w: %w", e.Err, before)
	}
	return e
}

// Cancel implements Opener.
func (p *Pool) Cancel(near Near, token uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pick(func(w waiter) bool { return w.token == token && w.near == near })
}

// pick takes those out of the queue for whom which is true, and gives them. It needs mu.
func (p *Pool) pick(which func(waiter) bool) []waiter {
	var out []waiter
	p.queue = slices.DeleteFunc(p.queue, func(w waiter) bool {
		is := which(w)
		if is {
			p.dequeued(w)
			out = append(out, w)
		}
		return is
	})
	p.waiters.Store(int64(len(p.queue)))
	return out
}

// dequeued notes that w is not in the queue any more: its place there is for another. It needs mu.
func (p *Pool) dequeued(w waiter) {
	if w.patient {
		p.patients--
		p.cfg.Queue.Leave()
	}
}

// Flush has those who wait ask again, in order, as many as there are places for. For the others a connection is made, if there may be one.
func (p *Pool) Flush(t *Turn) {
	defer p.guard()
	for {
		w, ok := p.first()
		if !ok {
			break
		}
		p.ready(t, w)
	}
	unplaced, e := p.dialForRest()
	failEach(t, unplaced, e)
}

// dialForRest has a connection made for those who have no place, if there may be one. Where none is made it takes the
// impatient out of the queue, and gives them with their error.
func (p *Pool) dialForRest() (out []waiter, e *upstream.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := len(p.queue)
	free := p.places(rest)
	// The connection that they waited for may carry fewer than was hoped.
	p.dialFor(rest - free)
	if rest > free && p.dialling == 0 {
		out, e = p.pick(impatient), p.full()
	}
	return out, e
}

// first takes the first one out of the queue, if there is a place for it.
func (p *Pool) first() (waiter, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 || p.places(1) == 0 {
		return waiter{}, false
	}
	w := p.queue[0]
	p.queue = slices.Delete(p.queue, 0, 1)
	p.waiters.Store(int64(len(p.queue)))
	p.dequeued(w)
	return w, true
}

func failEach(t *Turn, all []waiter, e *upstream.Error) {
	for _, w := range all {
		w.near.Failed(t, w.token, e)
	}
}

// Wake says that there may be a further connection, where there was none before: one is made if somebody waits for it.
func (p *Pool) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.atLimit = false
	switch {
	case p.patients == 0 || p.retired:
	case p.dialling > 0:
		p.limitRaised = true
	default:
		p.dialFor(p.patients)
	}
}
