package relay

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Call is a request to an endpoint of HTTP/1.1 from a client that speaks another
// version: the other half of what Exchange does in one. One goroutine may send
// (Write, Finish) while another receives (Head, Read); End comes last, from either. Errors are *upstream.Error.
type Call struct {
	conn   *Conn
	method string
	// Set by the sending side: whether the body has a length, and whether all was sent.
	chunked, sent bool
	// upgrade: the request asks for a change of protocols.
	upgrade bool
	// wrote and read count bytes, and failed is true after an error: each side's error tells of both.
	wrote, read atomic.Int64
	failed      atomic.Bool
	// The receiving side's: how much of the body is left, whether it is over.
	left    int64
	over    bool
	decoder http1.Chunked
	until   instant

	mu sync.Mutex // guards all below
	// cut: Break has closed the connection. ended: it is another request's.
	cut, ended bool
}

// Call sends the head of a request on the connection. m.Length -1 makes a body in chunked coding. by
// bounds each wait for the endpoint; the zero time is no bound.
func (c *Conn) Call(m *message.Request, by time.Time) (*Call, error) {
	c.used++
	k := &Call{conn: c, method: m.Method, chunked: m.Length < 0, sent: m.Length == 0, upgrade: m.Protocol != "", until: at(by)}
	if err := k.write(http1.AppendRequest(nil, m)); err != nil {
		k.End()
		return nil, err
	}
	return k, nil
}

// Write sends a part of the body.
func (k *Call) Write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if k.chunked {
		p = appendChunk(nil, p)
	}
	return k.write(p)
}

// Finish ends the body.
func (k *Call) Finish(trailers []message.Field) error {
	if k.chunked {
		if err := k.write(http1.AppendLast(nil, trailers)); err != nil {
			return err
		}
	}
	k.sent = true
	return nil
}

// write writes all of p. A wake is nothing to it: Break closes the connection.
func (k *Call) write(p []byte) error {
	for {
		n, err := k.conn.sock.write(p, k.until)
		k.wrote.Add(int64(n))
		p = p[n:]
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errWoken):
			return k.fail(err, upstream.ResetBeforeHeaders)
		}
	}
}

// Head waits for the next head: those of interim responses come first, each for itself. It is valid until Read.
func (k *Call) Head() (*message.Response, error) {
	c := k.conn
	for had := 0; ; {
		if len(c.in.data()) > had {
			n, err := c.parse(k.method, had)
			if err != nil {
				return nil, k.fail(err, upstream.ProtocolError)
			}
			if n > 0 {
				c.in.r += n
				return k.begin(&c.resp)
			}
			had = len(c.in.data())
		}
		if err := k.more(); err != nil {
			return nil, k.fail(err, upstream.ResetBeforeHeaders)
		}
	}
}

// begin notes what follows a head.
func (k *Call) begin(r *http1.Response) (*message.Response, error) {
	if r.Status == http.StatusSwitchingProtocols && (!k.upgrade || r.Protocol == "") {
		return nil, k.fail(errUnasked, upstream.UpgradeFailed)
	}
	r.DropLength()
	k.left = r.Length
	k.over = r.Status >= 200 && (!r.HasBody(k.method) || r.Length == 0)
	return &r.Response, nil
}

// Read gives the next part of the body, which is valid until the next call; nothing at its end.
func (k *Call) Read() ([]byte, error) {
	c := k.conn
	for !k.over {
		data, over, err := c.takeBody(&k.left, &k.decoder)
		k.over = over
		if err != nil {
			return nil, k.fail(err, upstream.ProtocolError)
		}
		if len(data) > 0 {
			return data, nil
		}
		if k.over {
			break
		}
		err = k.more()
		switch {
		case errors.Is(err, io.EOF) && c.resp.Length < 0 && !c.resp.Chunked:
			k.over, c.broken = true, true
		case err != nil:
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, k.fail(err, upstream.ResetMidBody)
		}
	}
	return nil, nil
}

// more reads on, into memory that an idle wait does without.
func (k *Call) more() error {
	in := &k.conn.in
	if in.r == in.w {
		in.give()
	}
	in.ensure()
	in.makeRoom(k.conn.pool.cfg.Limits.Bytes)
	for {
		n, err := k.conn.sock.read(in.space(), k.until)
		in.w += n
		k.read.Add(int64(n))
		if n > 0 || err != nil && !errors.Is(err, errWoken) {
			return err
		}
	}
}

// Trailers are those of the response, after Read gave nothing.
func (k *Call) Trailers() []message.Field { return k.decoder.Trailers() }

// Switch gives the connection after a 101, which takes the place of End.
func (k *Call) Switch() *Tunnel {
	return k.conn.tunnel()
}

// OnClose has f called when the connection is closed here (upstream.Raw.OnClose), until undo, which comes before End.
func (k *Call) OnClose(f func()) (undo func()) { return onClose(k.conn.sock.Conn, f) }

// Break ends all waits of the call, from any goroutine; the connection is lost. After End it does nothing.
func (k *Call) Break() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended {
		k.cut = true
		_ = k.conn.sock.Close()
	}
}

// End gives the connection back, or closes it where the call is not over.
func (k *Call) End() {
	k.mu.Lock()
	k.ended = true
	cut := k.cut
	k.mu.Unlock()
	c := k.conn
	c.broken = c.broken || cut || k.failed.Load() || !k.over || !k.sent || c.resp.Close
	c.Release()
}

// fail makes the error of a wait or a write that ended with err; reason is what it means unless the time was over.
func (k *Call) fail(err error, reason upstream.Reason) *upstream.Error {
	e := &upstream.Error{Reason: reason, NextHop: k.conn.pool.cfg.Address, Unsent: k.wrote.Load() == 0, Unanswered: k.read.Load() == 0, Err: err}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e.Reason = upstream.Deadline
	}
	e.Reused = reason == upstream.ResetBeforeHeaders && e.Unanswered && k.conn.used > 1
	k.failed.Store(true)
	return e
}
