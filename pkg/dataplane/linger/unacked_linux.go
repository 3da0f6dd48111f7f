package linger

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unacked is how many bytes the peer's host has not acknowledged (SIOCOUTQ, tcp(7)); 0 where nobody knows.
func unacked(c net.Conn) (n int) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if left, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			// The end of the stream counts as one.
			n = max(0, left-1)
		}
	})
	return n
}
