package proxy

import (
	"io"
	"net"
)

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

// Read gives what had been read before first, and then the rest.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.head) == 0 {
		return c.TCPConn.Read(p)
	}
	n := copy(p, c.head)
	c.head = c.head[n:]
	return n, nil
}

// WriteTo keeps io.Copy from going round Read.
func (c *conn) WriteTo(w io.Writer) (int64, error) {
	var n int64
	if len(c.head) > 0 {
		m, err := w.Write(c.head)
		n, c.head = int64(m), c.head[m:]
		if err != nil {
			return n, err
		}
	}
	m, err := c.TCPConn.WriteTo(w)
	return n + m, err
}

// socketOf gives the socket under a connection that a listener of ours may have wrapped.
func socketOf(c net.Conn) *net.TCPConn {
	if w, ok := c.(interface{ Socket() *net.TCPConn }); ok {
		return w.Socket()
	}
	return c.(*net.TCPConn)
}
