package http2

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
)

const (
	readSize = 64 << 10
	// highWater is how much may wait in a connection's output before data stays in its stream's queue.
	highWater = 256 << 10
	// readsATurn is how often a connection is read before what that led to is written.
	readsATurn = 4
	// writeStep is what a peer must take of our output within the stall timeout.
	writeStep = 64 << 10
)

var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// output is a buffer of frames to write.
type output struct{ b []byte }

var outputs = sync.Pool{New: func() any { return &output{make([]byte, 0, 4<<10)} }}

// wire is the bytes of a connection. An idle one has no buffers.
//
// Reading belongs to one goroutine. What is written is guarded by mu, and
// written by whoever flushes, without waiting: what the socket does not take at
// once gets a goroutine until it has.
type wire struct {
	nc net.Conn
	// raw is nil where nc is no socket: then every write has a goroutine.
	raw syscall.RawConn

	// owned by the reader
	in       *[readSize]byte
	from, to int
	got      int
	readErr  error
	rested   bool
	reads    int
	idle     func()
	// refill moves data into out that found no room there, and says whether it did. It needs mu.
	refill func(*Turn) bool
	// guard is deferred by a goroutine that writes. It needs mu.
	guard      func()
	readFn     func(uintptr) bool
	framer     *http2.Framer
	writeFn    func(uintptr) bool // of whoever has writing
	writeLeft  []byte
	wrote      int
	writeErr   error
	stallAfter time.Duration

	mu sync.Mutex // guards all below, and the rest of the connection that embeds it
	// out is nil while nothing waits.
	out *output
	// writing: somebody writes, and takes along what is added meanwhile. flagged: somebody's turn has it.
	writing, flagged bool
	// rests is told each time that somebody has done with writing; nil until drain.
	rests chan struct{}
	// dead: nothing can be written any more. stuck: because the peer did not read.
	dead, stuck bool
	// written is how many bytes the socket took, added how many were ever to be. reach is how many it may have
	// taken: who writes does so without mu, and the peer may answer, or go, before mu is had again.
	written, added, reach uint64

	writers sync.WaitGroup
}

func (w *wire) init(nc net.Conn, early []byte, stall time.Duration) {
	w.nc, w.stallAfter = nc, stall
	if sc, ok := nc.(syscall.Conn); ok && nonblocking {
		if raw, err := sc.SyscallConn(); err == nil {
			w.raw = raw
		}
	}
	w.readFn, w.writeFn = w.tryRead, w.tryWrite
	w.framer = http2.NewFramer(nil, (*cursor)(w))
	w.framer.SetMaxReadFrameSize(frameSize)
	w.framer.SetReuseFrames()
	if len(early) > 0 {
		w.in = readBuffers.Get().(*[readSize]byte)
		w.to = copy(w.in[:], early)
	}
}

// cursor lets the framer read what has come.
type cursor wire

func (c *cursor) Read(p []byte) (int, error) {
	if c.from == c.to {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(p, c.in[c.from:c.to])
	c.from += n
	return n, nil
}

// have gives what has come and is not used yet.
func (w *wire) have() []byte {
	if w.in == nil {
		return nil
	}
	return w.in[w.from:w.to]
}

// more waits for more bytes. Before it waits it calls idle, once.
func (w *wire) more() error {
	if w.reads++; w.reads > readsATurn {
		w.reads = 0
		w.idle()
	}
	w.rested = false
	if w.raw == nil {
		w.idle()
		w.room()
		n, err := w.nc.Read(w.in[w.to:])
		w.to += n
		if n > 0 {
			return nil
		}
		return err
	}
	if err := w.raw.Read(w.readFn); err != nil {
		return err
	}
	if w.readErr != nil {
		return w.readErr
	}
	w.to += w.got
	return nil
}

// room makes room to read a whole frame.
func (w *wire) room() {
	if w.in == nil {
		w.in = readBuffers.Get().(*[readSize]byte)
		w.from, w.to = 0, 0
	}
	if w.from == w.to {
		w.from, w.to = 0, 0
	} else if readSize-w.from < headLen+frameSize {
		w.to = copy(w.in[:], w.in[w.from:w.to])
		w.from = 0
	}
}

// release gives the buffer back if nothing is in it.
func (w *wire) release() {
	if w.in != nil && w.from == w.to {
		readBuffers.Put(w.in)
		w.in, w.from, w.to = nil, 0, 0
	}
}

func (w *wire) tryRead(fd uintptr) bool {
	w.room()
	for {
		n, err := sysRead(fd, w.in[w.to:])
		switch {
		case n > 0:
			w.got, w.readErr = n, nil
		case err == nil:
			w.readErr = io.EOF
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			if !w.rested {
				w.rested, w.reads = true, 0
				w.idle()
			}
			w.release()
			return false
		default:
			w.readErr = err
		}
		return true
	}
}

// tryWrite writes what the socket takes.
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

// put gives the output to append to. It needs mu.
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
			w.kill()
		} else if wrote < len(o.b) {
			w.later(o, wrote)
			return
		}
		o.free()
	}
	w.rest()
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

// rest notes that nobody writes any more. It needs mu.
func (w *wire) rest() {
	w.writing = false
	if w.rests != nil {
		select {
		case w.rests <- struct{}{}:
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
	w.rests = make(chan struct{}, 1)
	for {
		w.write(t)
		if done := w.dead || !w.writing && w.out == nil; done {
			break
		}
		w.mu.Unlock()
		select {
		case <-w.rests:
		case <-over:
			return
		}
		w.mu.Lock()
	}
	w.mu.Unlock()
}

// kill makes whoever reads or writes stop; the reader then closes the
// connection. Closing waits for those who use it, who may need mu. It needs mu.
func (w *wire) kill() {
	if !w.dead {
		w.dead = true
		_ = w.nc.SetDeadline(past)
	}
}

// past is a deadline that makes readers and writers stop.
var past = time.Unix(1, 0)

// later leaves the rest to a goroutine, which ends when all is written, or
// when the peer takes too little for the stall timeout. It needs mu.
func (w *wire) later(o *output, from int) {
	w.writers.Go(func() {
		var t Turn
		w.writeOut(&t, o, from)
		t.flush()
	})
}

func (w *wire) writeOut(t *Turn, o *output, from int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.guard()
	for left := o.b[from:]; len(left) > 0; {
		if w.dead {
			w.rest()
			return
		}
		_ = w.nc.SetWriteDeadline(time.Now().Add(w.stallAfter))
		step := left[:min(len(left), writeStep)]
		w.reach = w.written + uint64(len(step))
		n, err := w.writeWait(step)
		left = left[n:]
		w.took(n)
		if err != nil {
			w.stuck = !w.dead && errors.Is(err, os.ErrDeadlineExceeded)
			w.kill()
			w.rest()
			return
		}
	}
	o.free()
	if !w.dead {
		_ = w.nc.SetWriteDeadline(time.Time{})
	}
	w.rest()
	w.write(t)
}

// writeWait leaves mu while it waits for the socket to take p.
func (w *wire) writeWait(p []byte) (int, error) {
	w.mu.Unlock()
	defer w.mu.Lock()
	return w.nc.Write(p)
}
