package http2

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// output is a buffer of frames to write.
type output struct{ b []byte }

var outputs = sync.Pool{New: func() any { return &output{make([]byte, 0, 4<<10)} }}

// tryWrite writes what the socket takes, and never waits.
func (w *wire) tryWrite(fd uintptr) bool {
	for len(w.writeLeft) > 0 {
		n, err := sysWrite(fd, w.writeLeft)
		switch {
		case n > 0:
			w.wrote += n
			w.writeLeft = w.writeLeft[n:]
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return true
		default:
			w.writeErr = err
			return true
		}
	}
	return true
}

// put gives the output to append to; send takes it back. It needs mu.
func (w *wire) put() *output {
	if w.out == nil {
		w.out = outputs.Get().(*output)
	}
	return w.out
}

// waiting is how much is to be written. It needs mu.
func (w *wire) waiting() int {
	if w.out == nil {
		return 0
	}
	return len(w.out.b)
}

// write writes all output, and what refill adds when there is none. It needs
// mu, which it leaves while it writes.
func (w *wire) write(t *Turn) {
	if w.writing || w.dead {
		return
	}
	w.writing = true
	for !w.dead && (w.out != nil || w.refill(t)) {
		o := w.out
		w.out = nil
		w.added += uint64(len(o.b))
		if w.raw == nil {
			w.later(o, 0)
			return
		}
		w.reach = w.added
		wrote, err := w.writeRaw(o.b)
		w.took(wrote)
		if err != nil {
			w.severed()
		} else if wrote < len(o.b) {
			w.later(o, wrote)
			return
		}
		o.free()
	}
	w.doneWriting()
}

// writeRaw leaves mu while it writes what the socket takes.
func (w *wire) writeRaw(b []byte) (int, error) {
	w.mu.Unlock()
	defer w.mu.Lock()
	w.writeLeft, w.wrote, w.writeErr = b, 0, nil
	err := w.raw.Write(w.writeFn)
	if err == nil {
		err = w.writeErr
	}
	return w.wrote, err
}

// took notes what the socket took. It needs mu.
func (w *wire) took(n int) {
	w.written += uint64(n)
	w.reach = w.written
}

func (o *output) free() {
	if cap(o.b) <= 2*highWater {
		o.b = o.b[:0]
		outputs.Put(o)
	}
}

// doneWriting notes that nobody writes any more. It needs mu.
func (w *wire) doneWriting() {
	w.writing = false
	if w.writerDone != nil {
		select {
		case w.writerDone <- struct{}{}:
		default:
		}
	}
}

// drain writes all output, or waits until whoever writes has, but no longer than d; d below 0 is as long as the peer
// reads.
func (w *wire) drain(t *Turn, d time.Duration) {
	var over <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	w.mu.Lock()
	w.writerDone = make(chan struct{}, 1)
	for {
		w.write(t)
		if done := w.dead || !w.writing && w.out == nil; done {
			break
		}
		w.mu.Unlock()
		select {
		case <-w.writerDone:
		case <-over:
			return
		}
		w.mu.Lock()
	}
	w.mu.Unlock()
}

// later leaves the rest to a goroutine, which ends when all is written, or
// when the peer takes too little for the stall timeout. It needs mu.
func (w *wire) later(o *output, from int) {
	w.writers.Go(func() {
		var t Turn
		w.writeOut(&t, o, from)
		t.flush()
	})
}

// writeOut is the goroutine of later. When all is written it writes what has come meanwhile, as write does.
func (w *wire) writeOut(t *Turn, o *output, from int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.guard()
	for left := o.b[from:]; len(left) > 0; {
		if w.dead {
			w.doneWriting()
			return
		}
		_ = w.nc.SetWriteDeadline(time.Now().Add(w.stallAfter))
		step := left[:min(len(left), writeStep)]
		w.reach = w.written + uint64(len(step))
		n, err := w.writeWait(step)
		left = left[n:]
		w.took(n)
		if err != nil {
			if w.stuck = !w.dead && errors.Is(err, os.ErrDeadlineExceeded); w.stuck {
				w.kill()
			} else {
				w.severed()
			}
			w.doneWriting()
			return
		}
	}
	o.free()
	if !w.dead {
		_ = w.nc.SetWriteDeadline(time.Time{})
	}
	w.doneWriting()
	w.write(t)
}

// writeWait leaves mu while it waits for the socket to take p.
func (w *wire) writeWait(p []byte) (int, error) {
	w.mu.Unlock()
	defer w.mu.Lock()
	return w.nc.Write(p)
}
