package http2

import (
	"fmt"
	"runtime/debug"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// A panic is a defect of ours. It ends the connection under whose lock, or in whose goroutine, it happened, with
// everything on it: what stands there may be half changed. Everybody else goes on, so no lock stays held:
//
//   - what a Near, a Far, a timer or a Flush does stands under a lock that a defer gives back, after guard;
//   - a reader may hold its connection's lock by seize and yield instead, and caught gives it back.
//
// Without Config.Panicked nothing is recovered.

// errDefect is what becomes of the requests; the log has more.
func errDefect(v any) *upstream.Error {
	return &upstream.Error{Reason: upstream.Internal, Err: fmt.Errorf("a defect of the proxy: %v", v)}
}

// guard is deferred where mu is held: a panic ends the connection.
func (l *link) guard() {
	if l.cfg.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		l.defect(v)
	}
}

// locked calls f with mu.
func (l *link) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.guard()
	f()
}

// defect ends the connection for a panic. It needs mu.
func (l *link) defect(v any) {
	l.cfg.Panicked(v, debug.Stack())
	l.failure = errDefect(v)
	l.kill()
	// Whoever wrote does so no more.
	l.doneWriting()
}

// seize and yield are Lock and Unlock of mu for the reader.
func (l *link) seize() {
	l.mu.Lock()
	l.seized = true
}

func (l *link) yield() {
	l.seized = false
	l.mu.Unlock()
}

// caught is deferred by the reader: a panic ends what it does, with an error.
func (l *link) caught(err *error) {
	if l.cfg.Panicked == nil {
		return
	}
	v := recover()
	if v == nil {
		return
	}
	if !l.seized {
		l.seize()
	}
	l.defect(v)
	*err = l.failure
	l.yield()
	l.turn.mend()
}

// mend drops from a turn what it was at.
func (t *Turn) mend() {
	dirty := t.dirty[:0]
	for _, f := range t.dirty {
		if f != nil {
			dirty = append(dirty, f)
		}
	}
	t.dirty = dirty
	t.credits = t.credits[:0]
}

// guard is deferred where a panic is of no connection.
func (p *Pool) guard() {
	if p.connConfig.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		p.connConfig.Panicked(v, debug.Stack())
	}
}

// ready has one who waited ask again. A panic fails it.
func (p *Pool) ready(t *Turn, w waiter) {
	defer func() {
		if p.connConfig.Panicked == nil {
			return
		}
		if v := recover(); v != nil {
			p.connConfig.Panicked(v, debug.Stack())
			w.near.Failed(t, w.token, errDefect(v))
		}
	}()
	w.near.Ready(t, w.token)
}
