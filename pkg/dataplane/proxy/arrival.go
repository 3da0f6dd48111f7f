package proxy

import "net"

// arrival is a client's connection as it comes to be served by HTTP.
type arrival struct {
	// Conn is closed with what a listener of ours keeps of it; tcp is the socket in it.
	net.Conn
	tcp *net.TCPConn
	// head is what was read of it already.
	head []byte
	// to is where a captured connection was going; nil for one that came by itself.
	to *route
}

// socketOf gives the socket under a connection that a listener of ours may have wrapped.
func socketOf(c net.Conn) *net.TCPConn {
	if w, ok := c.(interface{ Socket() *net.TCPConn }); ok {
		return w.Socket()
	}
	return c.(*net.TCPConn)
}
