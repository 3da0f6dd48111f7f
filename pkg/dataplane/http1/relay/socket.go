package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// socket is a connection with deadlines that cost nothing while they do not
// expire, and with a way to wake who waits on it.
//
// A deadline once set is left alone as long as it is not later than the one that
// is wanted: it then fires early, and the waiter looks at the clock and sets it
// anew. So with times of seconds a busy connection sets one every few thousand requests.
//
// One goroutine reads at a time and one writes; waking is for all.
type socket struct {
	net.Conn
	// raw is nil where the connection is no plain socket.
	raw syscall.RawConn

	// readBy and writeBy are what is set on the connection; each belongs to who reads or writes.
	readBy, writeBy instant
	// wokenRead and wokenWrite say that who waits should look around: errWoken.
	wokenRead, wokenWrite atomic.Bool

	// step is what the reader wants done with the descriptor; its function is made once.
	step struct {
		ask, fill func(uintptr) bool
		// out is what is still to be written, buf where to read to; n and err what came.
		out, buf []byte
		window   *window
		n        int
		err      error
	}
	probe struct {
		look  func(uintptr)
		byte  [1]byte
		n     int
		errno syscall.Errno
	}
}

// errWoken ends a wait that wakeRead or wakeWrite was called for.
var errWoken = errors.New("woken")

// expired is a deadline that must be set anew, whatever is wanted.
const expired instant = 1<<63 - 1

func newSocket(c net.Conn) *socket {
	s := &socket{Conn: c}
	if plain, ok := c.(syscall.Conn); ok && rawReads {
		if raw, err := plain.SyscallConn(); err == nil {
			s.raw = raw
		}
	}
	s.step.ask, s.step.fill, s.probe.look = s.askStep, s.fillStep, s.lookStep
	return s
}

var past = time.Unix(1, 0)

func (s *socket) wakeRead() {
	s.wokenRead.Store(true)
	_ = s.SetReadDeadline(past)
}

func (s *socket) wakeWrite() {
	s.wokenWrite.Store(true)
	_ = s.SetWriteDeadline(past)
}

func (s *socket) wake() {
	s.wakeRead()
	s.wakeWrite()
}

// due tells whether the deadline that is set must be replaced by until.
func due(set, until instant) bool {
	if until == 0 {
		return set == expired
	}
	return set == 0 || set > until
}

func deadline(until instant) time.Time {
	if until == 0 {
		return time.Time{}
	}
	return until.time()
}

// beforeRead sets the deadline if it must. It gives errWoken for what came before.
func (s *socket) beforeRead(until instant) error {
	if due(s.readBy, until) {
		if err := s.SetReadDeadline(deadline(until)); err != nil {
			return err
		}
		s.readBy = until
	}
	// After the deadline is set, since that may have undone the one of wakeRead.
	if s.wokenRead.Load() {
		return s.readWoken()
	}
	return nil
}

func (s *socket) readWoken() error {
	s.wokenRead.Store(false)
	s.readBy = expired
	return errWoken
}

// afterRead gives nil for an error after which to try again: the deadline was an old one.
func (s *socket) afterRead(err error, until instant) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	s.readBy = expired
	if s.wokenRead.Load() {
		return s.readWoken()
	}
	if until != 0 && now() >= until {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// read reads once, waiting no longer than until. Its errors are those of the
// connection, os.ErrDeadlineExceeded, and errWoken.
func (s *socket) read(p []byte, until instant) (int, error) {
	for {
		if err := s.beforeRead(until); err != nil {
			return 0, err
		}
		n, err := s.Read(p)
		if err == nil || n > 0 {
			return n, nil
		}
		if err := s.afterRead(err, until); err != nil {
			return 0, err
		}
	}
}

// write writes all of p, waiting no longer than until. For its errors the same holds as for those of read.
func (s *socket) write(p []byte, until instant) (done int, err error) {
	for {
		if due(s.writeBy, until) {
			if err := s.SetWriteDeadline(deadline(until)); err != nil {
				return done, err
			}
			s.writeBy = until
		}
		if s.wokenWrite.Load() {
			return done, s.writeWoken()
		}
		n, err := s.Write(p[done:])
		done += n
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return done, err
		}
		s.writeBy = expired
		if s.wokenWrite.Load() {
			return done, s.writeWoken()
		}
		if until != 0 && now() >= until {
			return done, os.ErrDeadlineExceeded
		}
	}
}

func (s *socket) writeWoken() error {
	s.wokenWrite.Store(false)
	s.writeBy = expired
	return errWoken
}

// ask writes out, and reads what first comes back into buf. It spares the read
// that would find nothing yet: the wait begins before the write does, so that no
// answer is missed. wrote is how much of out went; it may be less only with an error.
func (s *socket) ask(out, buf []byte, until instant) (wrote, n int, err error) {
	if s.raw == nil {
		if wrote, err = s.write(out, until); err != nil {
			return wrote, 0, err
		}
		n, err = s.read(buf, until)
		return wrote, n, err
	}
	if err := s.beforeRead(until); err != nil {
		return 0, 0, err
	}
	t := &s.step
	t.out, t.buf, t.n, t.err = out, buf, 0, nil
	err = s.raw.Read(t.ask)
	rest := t.out
	t.out, t.buf = nil, nil
	wrote = len(out) - len(rest)
	switch {
	case err != nil:
		if err = s.afterRead(err, until); err != nil {
			return wrote, 0, err
		}
	case t.n > 0 || t.err != nil:
		return wrote, t.n, t.err
	}
	// What did not fit, or never began since an old deadline was in the way, goes by the ordinary way.
	if len(rest) > 0 {
		more, err := s.write(rest, until)
		if wrote += more; err != nil {
			return wrote, 0, err
		}
	}
	n, err = s.read(buf, until)
	return wrote, n, err
}

// askStep is called first to write, and then to read whenever there may be something.
func (s *socket) askStep(fd uintptr) bool {
	t := &s.step
	if len(t.out) == 0 {
		return s.readStep(fd)
	}
	n, errno := sysWrite(fd, t.out)
	t.out = t.out[n:]
	if errno != 0 && errno != syscall.EAGAIN {
		t.err = os.NewSyscallError("write", errno)
		return true
	}
	return len(t.out) > 0
}

func (s *socket) readStep(fd uintptr) bool {
	t := &s.step
	n, errno := sysRead(fd, t.buf)
	switch {
	case errno == syscall.EAGAIN:
		return false
	case errno != 0:
		t.err = os.NewSyscallError("read", errno)
	case n == 0:
		t.err = io.EOF
	default:
		t.n = n
	}
	return true
}

// fill reads into w, and gives it memory only when there is something to read.
func (s *socket) fill(w *window, until instant) error {
	if s.raw == nil || w.mem != nil {
		w.take()
		n, err := s.read(w.space(), until)
		w.w += n
		return err
	}
	t := &s.step
	for {
		if err := s.beforeRead(until); err != nil {
			return err
		}
		t.n, t.err, t.window = 0, nil, w
		err := s.raw.Read(t.fill)
		t.buf, t.window = nil, nil
		if err == nil {
			w.w += t.n
			return t.err
		}
		if err := s.afterRead(err, until); err != nil {
			return err
		}
	}
}

func (s *socket) fillStep(fd uintptr) bool {
	w := s.step.window
	w.take()
	s.step.buf = w.space()
	if s.readStep(fd) {
		return true
	}
	w.give()
	return false
}

// quiet looks without waiting whether anything is there to be read: it gives
// false for bytes and for the end. gone tells the end. Where it cannot look, all is quiet.
func (s *socket) quiet() (quiet, gone bool) {
	if s.raw == nil {
		return true, false
	}
	p := &s.probe
	if s.raw.Control(p.look) != nil {
		return false, true
	}
	return p.errno == syscall.EAGAIN, p.errno == 0 && p.n == 0 || p.errno != 0 && p.errno != syscall.EAGAIN
}

func (s *socket) lookStep(fd uintptr) { s.probe.n, s.probe.errno = sysPeek(fd, s.probe.byte[:]) }
