package linger

import (
	"net"
	"time"
)

const (
	// Settle is how long the peer gets to close, or to say something, when its host has all.
	Settle = 500 * time.Millisecond
	// Silence is how long it may take nothing while it has not.
	Silence = 5 * time.Second
	// Most bounds all of it.
	Most = 30 * time.Second
	// look is how often the peer is looked at while it has not all.
	look = 250 * time.Millisecond
)

// Watch is the end of one connection. Its writing side is to be closed first.
type Watch struct {
	Conn net.Conn
	// Speaks: what the peer sends shows that it still reads, as HTTP/2's does. What HTTP/1.1 sends is a body that nobody wants.
	Speaks bool

	// began is when it was asked first, moved when the peer took something last. left is what it had not then.
	began, moved time.Time
	left         int
}

// Next gives for how long to read next, where the last read gave n bytes; false where the connection may be closed.
func (w *Watch) Next(n int) (time.Duration, bool) {
	now, left := time.Now(), unread(w.Conn)
	if w.began.IsZero() {
		w.began, w.moved, w.left = now, now, left
	}
	if left != w.left || n > 0 && (w.Speaks || left > 0) {
		w.moved, w.left = now, left
	}
	over, each := w.moved.Add(Settle), Settle
	if left > 0 {
		over, each = w.moved.Add(Silence), look
	}
	if most := w.began.Add(Most); most.Before(over) {
		over = most
	}
	d := over.Sub(now)
	return min(d, each), d > 0
}
