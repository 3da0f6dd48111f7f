package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Relay passes the response of the last Send on to the client, the body as it
// comes. An error is an *upstream.Error: the client has had the head by then, so
// that its connection can only break off, which it does when Serve returns.
//
// done is called when the endpoint has done its part and has its connection back, before the client has the last of
// the answer where that may be: whoever knows that a request is over finds its place free. It is called
// once where Relay gives nil, and perhaps where it fails: then for a fault of the client's. nil is nobody.
func (x *Exchange) Relay(done func()) error {
	conn := x.conn
	resp := &conn.resp
	x.body.lost.Store(true)
	if resp.Status == http.StatusSwitchingProtocols {
		x.state = broken
		return x.fail(upstream.UpgradeFailed, errors.New("a change of protocols cannot be relayed as an answer"))
	}
	x.frame(resp.HasBody(x.req.Method), resp.Length, resp.Chunked)
	x.c.out.ensure()
	x.head = resp.Append((*x.c.out.mem)[:0], x.framing)
	x.state, x.done = answering, done
	if err := x.relayBody(conn, resp); err != nil {
		x.state = broken
		x.body.stop()
		x.drop()
		return err
	}
	x.state = answered
	x.giveBack(conn)
	return nil
}

// frame decides how an answer goes out (RFC 9112 section 6), and whether the connection ends with it. body: one follows
// the head, be it an empty one, of that length (-1 where only its end tells).
func (x *Exchange) frame(body bool, length int64, chunked bool) {
	old := x.req.Minor == 0
	f := http1.Framing{Length: body && length >= 0, Chunked: !old && (body && length < 0 || !body && chunked)}
	x.last = x.last || x.req.Close || x.c.leaving.Load() || body && !f.Length && !f.Chunked || x.unclear()
	f.Close, f.KeepAlive = x.last, old && !x.last
	x.framing, x.left, x.bodied = f, length, body
}

// unclear tells whether what comes next from the client may be something else than a request.
func (x *Exchange) unclear() bool {
	switch {
	case x.req.Expect && !x.continued && !x.body.complete.Load():
		// A client that waits for 100 may send its body or not.
		return true
	case x.req.Method == http.MethodConnect:
		return true
	}
	// A client that did not wait for the change of protocols speaks the other one.
	return x.req.Protocol != "" && len(x.c.in.data()) > 0
}

// giveBack gives the connection upstream back once the answer is over, unless it has been.
func (x *Exchange) giveBack(conn *Conn) {
	if x.conn == nil {
		return
	}
	whole := x.body.finish()
	conn.broken = conn.broken || conn.resp.Close || !whole
	x.release()
	if x.done != nil {
		x.done()
	}
}

// giveBackEarly is giveBack where the last of the answer is still to be written, out of the window that it gives.
func (x *Exchange) giveBackEarly(conn *Conn) (rest window) {
	if x.body.uploading {
		// The endpoint is still being sent the request, and the client does not wait for that.
		return window{}
	}
	// Bytes after the answer answer nothing.
	conn.broken = conn.broken || len(conn.in.data()) > 0
	rest, conn.in = conn.in, window{}
	x.giveBack(conn)
	return rest
}

// relayBody writes the head, and the body as it comes. Head and body go together, unless the body's length
// is unknown and nothing of it is there: then it may be long in coming.
func (x *Exchange) relayBody(conn *Conn, resp *http1.Response) error {
	if !resp.HasBody(x.req.Method) || resp.Length == 0 {
		rest := x.giveBackEarly(conn)
		defer rest.give()
		return x.pass(conn, nil, false)
	}
	w := wait{x: x, conn: conn, silence: x.c.cfg.ResponseTimeout}
	x.response.Reset()
	for {
		size := len(conn.in.data())
		data, done, err := conn.takeBody(&x.left, &x.response)
		if err != nil {
			return x.brokenBody(err)
		}
		if len(data) > 0 || done || resp.Length < 0 {
			if err := x.pass(conn, data, done); err != nil {
				return err
			}
		}
		if done {
			return nil
		}
		if size >= smallBuffer {
			conn.in.enlarge(largeBuffer)
		}
		w.plan()
		err = w.more()
		switch {
		case errors.Is(err, io.EOF) && resp.Length < 0 && !resp.Chunked:
			return x.pass(conn, nil, true)
		case err != nil:
			return x.brokenBody(err)
		}
	}
}

// pass writes the head, if it is still to be written, and data, which is in the
// connection's window; done: the body ends with it. What stands behind the data there may be overwritten: it
// has been used, or it answers nothing and the connection will be closed for it.
func (x *Exchange) pass(conn *Conn, data []byte, done bool) error {
	x.sent += int64(len(data))
	out, last := data, []byte(nil)
	if x.framing.Chunked && (len(data) > 0 || done) {
		out, last = x.chunk(conn, data, done)
	}
	if done {
		rest := x.giveBackEarly(conn)
		defer rest.give()
	}
	if head := x.head; head != nil {
		x.head = nil
		if len(head)+len(out) <= cap(head) || len(out) <= 1024 {
			out = append(head, out...)
		} else if err := x.toClient(head); err != nil {
			return err
		}
	}
	if len(out) > 0 {
		if err := x.toClient(out); err != nil {
			return err
		}
	}
	if len(last) > 0 {
		return x.toClient(last)
	}
	return nil
}

// chunk makes data a chunk where it stands, with the end of the body if done. last is what must be written after it.
func (x *Exchange) chunk(conn *Conn, data []byte, done bool) (out, last []byte) {
	trailers := x.response.Trailers()
	if !done {
		trailers = nil
	}
	if len(data) == 0 {
		return nil, http1.AppendLast(nil, trailers)
	}
	mem, start := *conn.in.mem, conn.in.offset(data)
	from, to := http1.PutChunk(mem, start, start+len(data))
	switch {
	case !done:
	case len(trailers) == 0:
		to += copy(mem[to:], "0\r\n\r\n")
	default:
		last = http1.AppendLast(nil, trailers)
	}
	return mem[from:to], last
}

// ownAnswerTime is how long the writing of an answer of ours may take: its request may be over already.
const ownAnswerTime = time.Second

// toClient writes all of p to the client. Its error is an *upstream.Error. An answer
// of ours is written though the request is over; what is relayed is not.
func (x *Exchange) toClient(p []byte) error {
	until := earliest(fromNow(x.c.cfg.WriteTimeout), x.deadline)
	if x.own {
		until = fromNow(ownAnswerTime)
	}
	for {
		n, err := x.c.sock.write(p, until)
		p = p[n:]
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errWoken):
			if cause := x.cancelled(); cause != nil && !x.own {
				return cause
			}
		case errors.Is(err, os.ErrDeadlineExceeded) && !x.own && x.deadline != 0 && now() >= x.deadline:
			return x.fail(upstream.Deadline, upstream.ErrNoEnd)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &upstream.Error{Reason: upstream.SlowReader, Err: fmt.Errorf("the client took nothing of the response for %s", x.c.cfg.WriteTimeout)}
		default:
			return &upstream.Error{Reason: upstream.ClientGone, Err: fmt.Errorf("write to the client: %w", err)}
		}
	}
}

// brokenBody makes the error of a response's body that could not be relayed to its end. The client gets the head and
// what came, and never an end.
func (x *Exchange) brokenBody(err error) error {
	e := x.fail(upstream.ResetMidBody, err)
	found := new(upstream.Error)
	_, malformed := errors.AsType[*http1.Error](err)
	switch {
	case errors.As(err, &found):
		e.Reason, e.Err = found.Reason, found.Err
	case malformed:
		e.Reason = upstream.ProtocolError
	case errors.Is(err, upstream.ErrNoAnswer):
		e.Reason, e.Err = upstream.Deadline, upstream.ErrNoEnd
	case errors.Is(err, errGone):
		e.Reason = upstream.ClientGone
	case errors.Is(err, errBody):
		failed := x.body.failed.Load()
		e.Reason, e.Err = failed.Reason, failed.Err
	case errors.Is(err, net.ErrClosed):
		e.Err = errClosedHere
	case errors.Is(err, io.EOF):
		e.Err = io.ErrUnexpectedEOF
	}
	if x.head != nil && e.Reason != upstream.ClientGone {
		_ = x.toClient(x.head)
	}
	x.head = nil
	return e
}

// Discard drops the response of the last Send, and with a small one keeps the connection. Another Send may follow if Replayable.
func (x *Exchange) Discard() {
	conn := x.conn
	resp := &conn.resp
	x.body.stop()
	if !x.body.sent() || resp.Close || resp.Length > smallBuffer {
		x.drop()
		return
	}
	w := wait{x: x, conn: conn, silence: afterAnswer}
	x.left = resp.Length
	x.response.Reset()
	defer x.response.Reset()
	for done, total := !resp.HasBody(x.req.Method) || resp.Length == 0, 0; !done; {
		data, end, err := conn.takeBody(&x.left, &x.response)
		if total += len(data); err != nil || total > smallBuffer {
			x.drop()
			return
		}
		if done = end; !done {
			w.plan()
			if w.more() != nil {
				x.drop()
				return
			}
		}
	}
	x.release()
}
