package proxy

import (
	"net"

	"golang.org/x/sys/unix"
)

// dead tells whether the connection is no more: its peer has reset it. The
// error of a splice does not tell which of its two sockets it came from.
func dead(c *net.TCPConn) (is bool) {
	if c == nil {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		is = err == nil && info.State == unix.BPF_TCP_CLOSE
	})
	return is
}
