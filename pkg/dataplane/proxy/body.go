package proxy

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// replayLimit is how much of a body is kept so that it can be sent again.
const replayLimit = 64 << 10

// errBodyMoved is what an attempt reads once another one has taken over.
var errBodyMoved = errors.New("the request has gone to another endpoint")

// body lets several attempts, one after another, read the request body of a bridge. What
// an attempt has read is kept up to replayLimit, until an answer comes. (The relays keep those of their own requests.)
// A nil *body is that of a request without one.
type body struct {
	src io.Reader

	// attempt is the number of the attempt that may read.
	attempt atomic.Int64
	// lost is true once something was read that is not kept.
	lost atomic.Bool
	// broken is why the client's body ended before its end; nil while it has not.
	broken atomic.Pointer[error]

	// read counts what came from the client.
	read atomic.Int64
	// whole is true once all of it was read.
	whole atomic.Bool

	mu   sync.Mutex // guards reading src, and what follows
	kept []byte
	err  error
	// owner is 0 while kept holds all that was read, and otherwise the only
	// attempt that can read on.
	owner int64
}

// replayable tells whether a new attempt would read the body from its start.
// It never blocks.
func (b *body) replayable() bool { return b == nil || !b.lost.Load() }

// complete tells whether the client has sent all of it.
func (b *body) complete() bool { return b == nil || b.whole.Load() }

// next gives the body to a new attempt. The former one reads errors from now
// on; what it is reading at this moment is kept for the new one.
func (b *body) next() io.Reader {
	return &attemptBody{b: b, attempt: b.attempt.Add(1)}
}

// answered drops what was kept: there will be no other attempt.
func (b *body) answered() {
	if b != nil {
		b.lost.Store(true)
	}
}

// failure is what went wrong on the client's side of the body, nil for nothing.
// It never blocks.
func (b *body) failure() error {
	if b == nil {
		return nil
	}
	if err := b.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// attemptBody is one attempt's view of a body, of which it has read kept[:at].
type attemptBody struct {
	b       *body
	attempt int64
	at      int
}

// Read implements io.Reader.
func (a *attemptBody) Read(p []byte) (int, error) {
	b := a.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.attempt.Load() != a.attempt {
		return 0, errBodyMoved
	}
	if b.owner != 0 && b.owner != a.attempt {
		return 0, errBodyMoved
	}
	if a.at < len(b.kept) {
		n := copy(p, b.kept[a.at:])
		a.at += n
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.src.Read(p)
	b.came(n, err)
	a.keep(p[:n])
	if b.attempt.Load() != a.attempt {
		return 0, errBodyMoved
	}
	return n, err
}

// came notes what a read of the client's body gave. It needs mu.
func (b *body) came(n int, err error) {
	b.read.Add(int64(n))
	b.err = err
	if errors.Is(err, io.EOF) {
		b.whole.Store(true)
	} else if err != nil {
		b.broken.Store(&err)
	}
}

// keep notes data that this attempt has read, for another one as long as it is not too much. It needs mu.
func (a *attemptBody) keep(data []byte) {
	b := a.b
	switch {
	// What a former attempt was reading is kept even if it is too much: the new one was promised all of it.
	case b.owner != 0:
	case b.lost.Load(), len(b.kept)+len(data) > replayLimit && b.attempt.Load() == a.attempt:
		b.lost.Store(true)
		b.kept, a.at = nil, 0
		b.owner = a.attempt
	default:
		b.kept = append(b.kept, data...)
		a.at += len(data)
	}
}
