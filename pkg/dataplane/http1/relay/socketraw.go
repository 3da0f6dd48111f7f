package relay

import (
	"io"
	"os"
	"syscall"
)

// The functions of this file reach below package net: they read and write the descriptor themselves, from within the
// callbacks of syscall.RawConn, which wait for it as package net does. The callbacks are made once for a socket, so their
// arguments and results lie in socket.step and socket.probe.

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

// readStep reads once; false, which has RawConn wait and call again, where nothing is there.
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
		w.ensure()
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

// fillStep is readStep into a window, which has memory only while that is called.
func (s *socket) fillStep(fd uintptr) bool {
	w := s.step.window
	w.ensure()
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

// hungUp tells whether the peer has closed the connection, and all that it sent was read. Any goroutine may ask, so it
// leaves probe alone.
func (s *socket) hungUp() (is bool) {
	if s.raw == nil {
		return false
	}
	err := s.raw.Control(func(fd uintptr) {
		n, errno := sysPeek(fd, make([]byte, 1))
		is = n == 0 && errno == 0 || errno != 0 && errno != syscall.EAGAIN
	})
	return is || err != nil
}

// lookStep is the one look of quiet.
func (s *socket) lookStep(fd uintptr) { s.probe.n, s.probe.errno = sysPeek(fd, s.probe.byte[:]) }
