package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one HTTP connection of a pool.
type conn struct {
	*http.ClientConn
	pool *Pool
	// tcp is set by the dial, before ClientConn.
	tcp *counted
	// streams is how many requests it took when it was new. Set once.
	streams int

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
	// begun is closed when what came first has been looked at, or nothing came; nil for HTTP/1.1.
	begun chan struct{}
	once  sync.Once
	// broken is set before begun is closed.
	broken bool
	// preface is what it began with; nothing for HTTP/1.1. ended: its peer or the network ended it, not we.
	preface preface
	ended   atomic.Bool
	// leave gives the connection's place in the gate back.
	leave func()
}

// Close closes the connection.
func (c *counted) Close() error {
	c.begin(true)
	defer c.leave()
	return c.TCPConn.Close()
}

// Write counts before it writes: the connection may break, and the count be
// looked at, before the writer has come back from the kernel.
func (c *counted) Write(b []byte) (int, error) {
	c.wrote.Add(int64(len(b)))
	n, err := c.TCPConn.Write(b)
	c.wrote.Add(int64(n - len(b)))
	c.failed(err)
	return n, err
}

// ReadFrom keeps sendfile and splice for bodies. It counts a byte before, as Write does.
func (c *counted) ReadFrom(r io.Reader) (int64, error) {
	c.wrote.Add(1)
	n, err := c.TCPConn.ReadFrom(r)
	c.wrote.Add(n - 1)
	return n, err
}

// Read is called by one goroutine of net/http.
func (c *counted) Read(b []byte) (int, error) {
	if c.read.Load() > 0 {
		// Who reads on has worked on what there was: the settings, which come first (RFC 9113 section 3.4).
		c.begin(false)
	}
	n, err := c.TCPConn.Read(b)
	if c.begun != nil {
		c.preface.read(b[:n])
	}
	c.read.Add(int64(n))
	c.failed(err)
	if err != nil {
		c.begin(true)
	}
	return n, err
}

// failed notes the end of the connection in err, which may be nil.
func (c *counted) failed(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		c.ended.Store(true)
	}
}

func (c *counted) begin(broken bool) {
	if c.begun != nil {
		c.once.Do(func() {
			c.broken = broken
			close(c.begun)
		})
	}
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
	if p.cfg.HTTP2 {
		c.begun = make(chan struct{})
	}
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
		if rw, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
			resp.Body = c.pool.book(rw, c.tcp.TCPConn)
		} else if resp.Body != http.NoBody {
			resp.Body = &answerBody{resp.Body, req.Context(), c.pool} //nolint:contextcheck // the request's own
		}
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

// answerBody is a response's body whose errors are *Error.
type answerBody struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // the request's, which the body belongs to
	pool *Pool
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, bodyError(b.ctx, b.pool.cfg.Address, err)
	}
	return n, err
}
