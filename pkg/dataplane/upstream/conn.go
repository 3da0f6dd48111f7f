package upstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// conn is one HTTP connection of a pool.
type conn struct {
	*http.ClientConn
	pool *Pool
	// tcp is set by the dial, before ClientConn.
	tcp *counted

	// busy and used are guarded by pool.mu. busy is a hint for HTTP/1.1;
	// Reserve decides. used is when the connection was last in use.
	busy bool
	used time.Time
}

// counted counts the bytes of a connection, which is how an HTTP/1.1 request
// is known to be unsent or unanswered.
type counted struct {
	*net.TCPConn
	wrote, read atomic.Int64
	// leave gives the connection's place in the gate back.
	leave func()
}

// Close closes the connection.
func (c *counted) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.wrote.Add(int64(n))
	return n, err
}

// ReadFrom keeps sendfile and splice for bodies.
func (c *counted) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.TCPConn.ReadFrom(r)
	c.wrote.Add(n)
	return n, err
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// WriteTo keeps splice, and keeps io.Copy from going round Read's count.
func (c *counted) WriteTo(w io.Writer) (int64, error) {
	n, err := c.TCPConn.WriteTo(w)
	c.read.Add(n)
	return n, err
}

func (p *Pool) dialHTTP(ctx context.Context, _, _ string) (net.Conn, error) {
	tcp, leave, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	c := &counted{TCPConn: tcp, leave: leave}
	if owner, ok := ctx.Value(netConnKey{}).(*conn); ok {
		owner.tcp = c
	}
	return c, nil
}

// RoundTrip implements Conn.
func (c *conn) RoundTrip(req *http.Request) (*http.Response, error) {
	wrote, read := c.tcp.wrote.Load(), c.tcp.read.Load()
	resp, err := c.ClientConn.RoundTrip(req)
	if err == nil {
		return resp, nil
	}
	// An HTTP/2 connection is shared, so its byte counts say nothing of one
	// stream; the caller knows of interim responses.
	unsent, unanswered, reused := false, true, false
	if !c.pool.cfg.HTTP2 {
		unsent = c.tcp.wrote.Load() == wrote
		unanswered = c.tcp.read.Load() == read
		reused = unanswered && wrote > 0
	}
	e := sendError(req.Context(), c.pool.cfg.Address, err, unsent, unanswered)
	e.Reused = reused && e.Reason == ResetBeforeHeaders
	return nil, e
}
