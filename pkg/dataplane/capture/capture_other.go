//go:build !linux

package capture

import (
	"net"
	"net/netip"
	"syscall"
)

func originalDestination(*net.TCPConn) (netip.AddrPort, error) {
	return netip.AddrPort{}, ErrUnsupported
}

func makeTransparent(string, string, syscall.RawConn) error { return ErrUnsupported }
