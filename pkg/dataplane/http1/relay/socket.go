package relay

import (
	"errors"
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
	// probe is for quiet, in the same way.
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

// due tells whether the deadline that is set must be replaced by until; one that is too early may stay.
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
	s.forgetWake()
	return errWoken
}

// forgetWake takes a wakeRead back, which must not be found by the next who reads.
func (s *socket) forgetWake() {
	s.wokenRead.Store(false)
	s.readBy = expired
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
