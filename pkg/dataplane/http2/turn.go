package http2

import "runtime"

// flusher is what has something to do without a lock held, mostly a connection with something to write. A Turn calls it
// once for each add.
type flusher interface{ Flush(t *Turn) }

// Turn is one goroutine's piece of work: what it reads without blocking, or
// one event. What that adds to other connections is written when it ends, so
// that a connection is written to once for all. Every goroutine has its own;
// the zero value is ready.
type Turn struct {
	dirty   []flusher
	credits []credit
}

// credit is what has left a call's queue, to be told to where it came from.
type credit struct {
	near  Near
	token uint64
	n     int
}

// add has f flushed at the end of the turn.
func (t *Turn) add(f flusher) { t.dirty = append(t.dirty, f) }

// end flushes. Other goroutines that are ready to run go first, since what they add to
// the same connections then goes out in the same write.
func (t *Turn) end() {
	if len(t.dirty) > 0 {
		runtime.Gosched()
	}
	t.flush()
}

// flush flushes at once: for a goroutine that has nobody to share a write with.
func (t *Turn) flush() {
	for len(t.dirty) > 0 || len(t.credits) > 0 {
		// Flushing can make room, which brings credit, which adds to others.
		for i := 0; i < len(t.credits); i++ {
			c := t.credits[i]
			t.credits[i] = credit{}
			c.near.Consumed(t, c.token, c.n)
		}
		t.credits = t.credits[:0]
		for i := 0; i < len(t.dirty); i++ {
			f := t.dirty[i]
			t.dirty[i] = nil
			f.Flush(t)
		}
		t.dirty = t.dirty[:0]
	}
}
