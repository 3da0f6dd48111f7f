package linger

import (
	"net"
	"time"
)

const (
	// ToClose is how long the peer gets to close, or to say something, once its host has all that was written.
	ToClose = 500 * time.Millisecond
	// Silence is how long the peer may take nothing while its host has not all.
	Silence = 5 * time.Second
)

const (
	// maxTotal bounds all of it.
	maxTotal = 30 * time.Second
	// lookEvery is how often the peer is looked at while its host has not all: no event tells of what it takes.
	lookEvery = 250 * time.Millisecond
)

// Watch is the end of one connection. Its writing side is to be closed first.
type Watch struct {
	Conn net.Conn
	// Speaks: what the peer sends shows that it still reads, as HTTP/2's does. What HTTP/1.1 sends is a body that nobody wants.
	Speaks bool

	// began is when Next was called first, moved when the peer last took or said something. left is what was unacked then.
	began, moved time.Time
	left         int
}

// Next gives for how long to read next, where the last read gave n bytes; false where the connection may be closed.
func (w *Watch) Next(n int) (time.Duration, bool) {
	now, left := time.Now(), unacked(w.Conn)
	if w.began.IsZero() {
		w.began, w.moved, w.left = now, now, left
	}
	if left != w.left || n > 0 && (w.Speaks || left > 0) {
		w.moved, w.left = now, left
	}
	over, each := w.moved.Add(ToClose), ToClose
	if left > 0 {
		over, each = w.moved.Add(Silence), lookEvery
	}
	if most := w.began.Add(maxTotal); most.Before(over) {
		over = most
	}
	d := over.Sub(now)
	return min(d, each), d > 0
}
