package relay

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Tunnel is a connection that has become opaque, with what had been read of it.
type Tunnel struct {
	net.Conn
	first []byte
	// end is called by Close; it may be nil.
	end func()
}

// OnClose has f called when a connection to an endpoint is closed here (upstream.Raw.OnClose), until undo; that of a client knows no such end.
func (t *Tunnel) OnClose(f func()) (undo func()) { return onClose(t.Conn, f) }

func onClose(c net.Conn, f func()) (undo func()) {
	if c, ok := c.(interface{ OnClose(f func()) (undo func()) }); ok {
		return c.OnClose(f)
	}
	return func() {}
}

// Switch passes a 101 on and gives both connections, which the caller must close
// (RFC 9110 section 7.8). The HTTP on the client's connection is over with it. An error is an *upstream.Error.
func (x *Exchange) Switch() (client, server *Tunnel, err error) {
	conn := x.conn
	x.body.stop()
	if err := x.toClient(conn.resp.Append(nil, http1.Framing{})); err != nil {
		x.state = broken
		return nil, nil, err
	}
	client = x.tunnel()
	server = conn.tunnel()
	x.conn = nil
	x.up.Store(nil)
	return client, server, nil
}

// Connect accepts a CONNECT, and gives the client's connection, which the caller
// must close (RFC 9110 section 9.3.6). An error is an *upstream.Error.
func (x *Exchange) Connect() (*Tunnel, error) {
	if err := x.toClient([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
		x.state = broken
		return nil, err
	}
	return x.tunnel(), nil
}

// tunnel is the client's connection as it goes on after the answer.
func (x *Exchange) tunnel() *Tunnel {
	x.state, x.last = answered, true
	// A tunnel lives long, and holds no memory for the head.
	x.req.Detach()
	x.ctx.stopWatching()
	// From here on Leave must not touch the deadlines.
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	x.c.opaque = true
	return newTunnel(x.c.sock, &x.c.in, nil)
}

// tunnel is the connection to the endpoint as it goes on after a change of protocols.
func (c *Conn) tunnel() *Tunnel {
	return newTunnel(c.sock, &c.in, sync.OnceFunc(func() {
		c.broken = true
		c.Release()
	}))
}

// newTunnel takes what was read out of in, and the deadlines off the socket.
func newTunnel(s *socket, in *window, end func()) *Tunnel {
	t := &Tunnel{Conn: s.Conn, first: append([]byte(nil), in.data()...), end: end}
	in.give()
	_ = s.SetDeadline(time.Time{})
	s.readBy, s.writeBy = 0, 0
	return t
}

// Read implements io.Reader.
func (t *Tunnel) Read(p []byte) (int, error) {
	if len(t.first) > 0 {
		n := copy(p, t.first)
		t.first = t.first[n:]
		return n, nil
	}
	return t.Conn.Read(p)
}

// WriteTo lets the kernel move the bytes where it can.
func (t *Tunnel) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(t.first)
	if t.first = t.first[n:]; err != nil {
		return int64(n), err
	}
	if other, ok := w.(*Tunnel); ok {
		w = other.Conn
	}
	more, err := io.Copy(w, t.Conn)
	return int64(n) + more, err
}

// CloseWrite ends the writing side; the whole where it cannot be ended alone.
func (t *Tunnel) CloseWrite() error {
	if half, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return t.Close()
}

// SetLinger is net.TCPConn's, and nothing where there is none.
func (t *Tunnel) SetLinger(seconds int) error {
	if l, ok := t.Conn.(interface{ SetLinger(int) error }); ok {
		return l.SetLinger(seconds)
	}
	return nil
}

// Close closes the connection and takes it off the books of its pool.
func (t *Tunnel) Close() error {
	err := t.Conn.Close()
	if t.end != nil {
		t.end()
	}
	return err
}

// Socket is the connection itself, to look at and not to use; nil where it is another kind.
func (t *Tunnel) Socket() *net.TCPConn {
	switch c := t.Conn.(type) {
	case *net.TCPConn:
		return c
	case *upstream.Raw:
		return c.TCPConn
	case interface{ Socket() *net.TCPConn }:
		return c.Socket()
	}
	return nil
}

// ReadFrom lets the kernel move the bytes where it can.
func (t *Tunnel) ReadFrom(r io.Reader) (int64, error) { return io.Copy(t.Conn, r) }
