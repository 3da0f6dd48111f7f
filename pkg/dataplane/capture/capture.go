// Package capture finds where a connection was going before the kernel led it
// to the proxy, and opens listeners that can be led to.
//
// Two ways lead here. REDIRECT (nftables, iptables) rewrites the destination
// and conntrack remembers it: SO_ORIGINAL_DST. TPROXY rewrites nothing: the
// accepted socket's own address is the destination, and the listener needs
// IP_TRANSPARENT. Linux has both; elsewhere nothing is ever captured.
//
// It holds no state; every function may be called from any goroutine.
package capture

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// ErrUnsupported says that this system cannot do what was asked.
var ErrUnsupported = errors.New("not supported on this system")

// Destination gives where c was going. It is false for a connection that was
// made to the listener itself, whose port is own.
func Destination(c *net.TCPConn, own uint16) (netip.AddrPort, bool) {
	local := AddrPort(c.LocalAddr())
	if original, err := originalDestination(c); err == nil && original.IsValid() && original != local {
		return original, true
	}
	// With TPROXY the socket has the destination's own address.
	return local, local.Port() != own
}

// AddrPort gives the address of a TCP socket: IPv4 as such, also where the socket
// is IPv6, and without a zone. It is invalid for other networks.
func AddrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := tcp.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}

// Listen is net.Listen for TCP; transparent makes a listener that TPROXY can
// lead to (it needs CAP_NET_ADMIN). Its error for that elsewhere than on Linux is ErrUnsupported.
func Listen(ctx context.Context, address string, transparent bool) (net.Listener, error) {
	config := net.ListenConfig{}
	if transparent {
		config.Control = makeTransparent
	}
	return config.Listen(ctx, "tcp", address)
}
