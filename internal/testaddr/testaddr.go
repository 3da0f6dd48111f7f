// Package testaddr gives addresses to tests: such as are free, such as refuse, and
// such as can be listened on again by tests that start what they have stopped.
//
// A child process has copies of all files of its parent between fork and exec.
// A listener that is closed meanwhile goes on listening in there, and its
// address is in use for as long as that lasts: milliseconds, on a busy machine.
package testaddr

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
)

// Listen listens on a TCP address; its port may be 0. The address is free when
// the listener's Close returns, whatever the process starts meanwhile.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &listener{TCPListener: l.(*net.TCPListener)}, nil
}

type listener struct {
	*net.TCPListener
	closed atomic.Bool
}

// Close ends the listening itself and not only this process's part in it (shutdown(2)).
func (l *listener) Close() error {
	l.closed.Store(true)
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
	return l.TCPListener.Close()
}

// Accept gives net.ErrClosed once Close was called.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil && l.closed.Load() {
		return nil, net.ErrClosed
	}
	return c, err
}
