package faults

import (
	"sync"
	"testing"
	"time"
)

// effect says from when recovery counts.
type effect int

const (
	// fromChange: from the last change of endpoints.
	fromChange effect = iota
	// fromBegin: from when the fault was in force.
	fromBegin
	// fromEnd: from the fault's end, as nothing can pass before.
	fromEnd
)

// fault is one case.
type fault struct {
	name string
	// from makes the source; nil means files.
	from func(testing.TB) source
	// begin brings the fault into force, and gives what ends it. Both may be nil.
	begin func(*world) (end func())
	// change is made under the fault; nil means a turnover.
	change func(*world)
	// lasts is how long the fault is in force after the change; nil means until the run is over.
	lasts  func(scale) time.Duration
	counts effect
	// clients of the full run and of the short one; nil means everyone, and our data plane.
	clients, short []kind
	// beyond says why a client cannot keep the bound.
	beyond map[kind]string
	// later is how much longer than a fault of the stream it may hurt, and the audit be blind; nil for no longer.
	later func(scale) time.Duration
}

// run runs the case, and gives a verdict for each client.
func (f fault) run(t *testing.T, s scale, kinds []kind) []verdict {
	t.Helper()
	from := f.from
	if from == nil {
		from = newFiles
	}
	w := newWorld(t, s, from, kinds)
	audit := startWatch(t, w.admin)
	before := make(map[kind]counts)
	for _, c := range w.clients {
		if c.counted != nil {
			before[c.kind] = c.counted()
		}
		c.load = startLoad(t, c.dial)
	}
	w.wait(time.Second)

	m, end := f.happen(w)
	w.observe(m)
	var all []verdict
	for _, c := range w.clients {
		v := w.judge(c, audit, m)
		if c.counted != nil {
			after := c.counted()
			v.counts = counts{retries: after.retries - before[c.kind].retries, refused: after.refused - before[c.kind].refused}
		}
		all = append(all, v)
	}
	end()
	w.wantFresh(2*s.heal, f.beyond)
	for i, c := range w.clients {
		all[i].audit = audit.story(c.kind.node(), m.begin)
	}
	return all
}

// bound is how long recovery may take.
func (f fault) bound(s scale) time.Duration {
	if f.later != nil {
		return s.heal + f.later(s)
	}
	return s.heal
}

// happen lets the fault and the change happen, and gives when they did.
func (f fault) happen(w *world) (m moments, end func()) {
	w.t.Helper()
	m = moments{begin: time.Now(), bound: f.bound(w.scale)}
	if f.begin != nil {
		end = f.begin(w)
	}
	if end == nil {
		end = func() {}
	}
	end = sync.OnceFunc(end)
	inForce := time.Now()
	if f.change != nil {
		f.change(w)
	} else {
		w.fleet.turnover()
	}
	_, m.changed = w.fleet.now(echo)
	if f.lasts != nil {
		w.wait(f.lasts(w.scale))
		end()
	}
	switch f.counts {
	case fromChange:
		m.effect = m.changed
	case fromBegin:
		m.effect = inForce
	case fromEnd:
		m.effect = time.Now()
	}
	return m, end
}

// observe lets traffic run until the bound is over, or where the scale says so
// until every client has been right for a while.
func (w *world) observe(m moments) {
	w.t.Helper()
	over := m.effect.Add(m.bound + slack)
	for time.Now().Before(over) {
		right := !w.whole
		for _, c := range w.clients {
			since, missing := w.rightSince(c, m)
			right = right && len(missing) == 0 && time.Since(since) > w.watch && time.Since(m.effect) > w.watch
		}
		if right {
			return
		}
		w.wait(pollPeriod)
	}
}
