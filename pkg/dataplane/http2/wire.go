package http2

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/linger"
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

// wire is the bytes of a connection: reading them here, writing in wirewrite.go. An idle one has no buffers.
//
// Reading belongs to one goroutine. What is written is guarded by mu, and
// written by whoever flushes, without waiting: what the socket does not take at
// once gets a goroutine until it has.
type wire struct {
	// set once
	nc net.Conn
	// raw is nil where nc is no socket: then every write has a goroutine.
	raw        syscall.RawConn
	stallAfter time.Duration
	// listens: the peer is heard out when it takes nothing any more.
	listens bool
	// idle is called by the reader before it waits. refill moves data into out that found no room there, and says
	// whether it did; guard is deferred by a goroutine that writes. These two need mu.
	idle            func()
	refill          func(*Turn) bool
	guard           func()
	readFn, writeFn func(uintptr) bool

	// owned by the reader
	// in[from:to] has come and is not used yet; in is nil while nothing is there.
	in       *[readSize]byte
	from, to int
	// got and readErr are what readFn came to.
	got     int
	readErr error
	// idled: idle was called in this wait. reads counts since it was called last.
	idled  bool
	reads  int
	framer *http2.Framer

	// owned by whoever has writing: what writeFn is to write, and what that came to
	writeLeft []byte
	wrote     int
	writeErr  error

	mu sync.Mutex // guards all below, and the rest of the connection that embeds it
	// out is nil while nothing waits.
	out *output
	// writing: somebody writes, and takes along what is added meanwhile. flagged: somebody's turn has it.
	writing, flagged bool
	// writerDone is told each time that somebody has done with writing; nil until drain.
	writerDone chan struct{}
	// dead: nothing can be written any more. stuck: because the peer did not read. killed: nothing is to be read either.
	dead, stuck, killed bool
	// written is how many bytes the socket took, added how many were ever to be. reach is how many it may have
	// taken: who writes does so without mu, and the peer may answer, or go, before mu is had again.
	written, added, reach uint64

	// writers are the goroutines that later and Ticket.Fail begin.
	writers sync.WaitGroup
}

// init sets up what is set once; early is what was read of nc already.
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

// more waits for more bytes. Before it waits it calls idle, once; after some reads that need no waiting too, so that
// a peer that never pauses is answered.
func (w *wire) more() error {
	if w.reads++; w.reads > readsATurn {
		w.reads = 0
		w.idle()
	}
	w.idled = false
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

// tryRead reads once, and has RawConn wait where nothing is there: with idle called, and the buffer given back.
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
			if !w.idled {
				w.idled, w.reads = true, 0
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

// kill makes whoever reads or writes stop; the reader then closes the
// connection. Closing waits for those who use it, who may need mu. It needs mu.
func (w *wire) kill() {
	w.dead = true
	if !w.killed {
		w.killed = true
		_ = w.nc.SetDeadline(past)
	}
}

// severed notes that the peer takes nothing any more: it has gone. What an endpoint said before it went may not have been
// read yet, and is an answer; a client can be told nothing any more. It needs mu.
func (w *wire) severed() {
	if !w.listens {
		w.kill()
	} else if !w.dead {
		w.dead = true
		_ = w.nc.SetReadDeadline(time.Now().Add(linger.ToClose))
	}
}

// past is a deadline that makes readers and writers stop.
var past = time.Unix(1, 0)
