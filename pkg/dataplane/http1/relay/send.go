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

const (
	// firstLook is after how long a wait for an endpoint looks whether the client is still there. It then looks
	// when an eighth of the wait has gone by again, and at least every lastLook.
	firstLook, lastLook = 50 * time.Millisecond, 5 * time.Second
	// maxInterims bounds the 1xx responses to one request.
	maxInterims = 100
)

// Send sends the request on conn once and waits for the head of the final
// response; interim ones are passed on. limit bounds the wait for this attempt; 0 is no limit.
//
// The response is valid until Relay or Discard, one of which comes next, or
// Switch for 101. An error is an *upstream.Error, whose Unsent, Unanswered and Reused
// hold; the connection is closed then, and another Send may follow if Replayable.
func (x *Exchange) Send(conn *Conn, limit time.Duration) (*http1.Response, error) {
	x.conn = conn
	x.up.Store(conn)
	conn.used++
	conn.resp.Status = 0
	w := wait{x: x, conn: conn}
	w.plan()
	if limit > 0 {
		w.try = w.began.after(limit)
		w.until = min(w.until, w.try)
	}
	resp, err := w.send()
	if err == nil {
		return resp, nil
	}
	e := w.classify(err)
	if e.Unsent && e.Unanswered && (errors.Is(err, errBody) || x.cancelled() != nil) {
		// It is none of the connection's fault, and nothing has been done with it.
		x.release()
	}
	x.body.stop()
	if failed := x.body.failed.Load(); failed != nil && x.cancelled() == nil {
		e.Reason, e.Err = failed.Reason, failed.Err
		if e.Reason == upstream.BadBody {
			e.Err = fmt.Errorf("read request body: %w", failed.Err)
		}
	}
	x.drop()
	return nil, e
}

// wait is one attempt's wait for its answer.
type wait struct {
	x    *Exchange
	conn *Conn
	// began is when it began; until the next time to look around; try the end of the attempt's own time, 0 for none.
	began, until, try instant
	// wrote and read count bytes.
	wrote, read, interims int
	// silence bounds how long nothing may come, 0 is for ever; silent is when it is over.
	silence time.Duration
	silent  instant
}

var (
	errTry     = errors.New("the time for one attempt is over")
	errGone    = errors.New("the client has closed its connection")
	errSilence = errors.New("nothing came for too long")
	errUnasked = errors.New("the endpoint switched protocols unasked")
	errInterim = errors.New("too many interim responses")
	errConnect = errors.New("CONNECT is not for an endpoint")
	errBody    = errors.New("the request's body broke off")
)

// plan begins a wait.
func (w *wait) plan() {
	w.began = now()
	if w.silence > 0 {
		w.silent = w.began.after(w.silence)
	}
	w.look(w.began)
}

// look plans the next look around.
func (w *wait) look(t instant) {
	w.until = earliest(earliest(t.after(nextLook(w.began, t)), w.try), earliest(w.x.deadline, w.silent))
}

// nextLook is when to look again, in a wait that began so long ago.
func nextLook(began, t instant) time.Duration {
	return min(max(time.Duration(t-began)/8, firstLook), lastLook)
}

func (w *wait) send() (*http1.Response, error) {
	x, conn := w.x, w.conn
	if err := x.cancelled(); err != nil {
		return nil, err
	}
	if x.body.failed.Load() != nil {
		return nil, errBody
	}
	if x.req.Method == http.MethodConnect {
		return nil, errConnect
	}
	conn.in.take()
	x.c.out.take()
	out := x.req.Append((*x.c.out.mem)[:0])
	b := &x.body
	b.uploaded = false
	from := 0
	inline := b.complete.Load() && len(b.kept) <= inlineLimit
	if inline || len(b.kept) < inlineLimit/4 {
		out = b.appendInline(out)
		from = len(b.kept)
		inline = b.complete.Load()
	}
	var n int
	var err error
	if inline {
		w.wrote, n, err = conn.sock.ask(out, conn.in.space(), w.until)
		if err = w.judge(err); err == nil {
			// It may have been woken before all was written.
			err = w.write(out)
		}
	} else if err = w.write(out); err == nil {
		b.upload(conn, from)
	}
	conn.in.w += n
	w.read += n
	if err != nil {
		conn.broken = true
		if !readable(err) {
			return nil, err
		}
	}
	return w.head(err)
}

// write writes what of out has not been written.
func (w *wait) write(out []byte) error {
	for w.wrote < len(out) {
		n, err := w.conn.sock.write(out[w.wrote:], w.until)
		w.wrote += n
		if err = w.judge(err); err != nil {
			return err
		}
	}
	return nil
}

// readable tells whether after an error of writing there may still be something to be read: a
// server may answer and close before it has read all.
func readable(err error) bool {
	op := new(os.SyscallError)
	return errors.As(err, &op) && op.Syscall == "write"
}

// head reads until the head of the final response is there. broken is why the
// request could not be written; nil for it could.
func (w *wait) head(broken error) (*http1.Response, error) {
	conn := w.conn
	for had := 0; ; {
		for len(conn.in.data()) > had {
			n, err := conn.parse(w.x.req.Method, had)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				had = len(conn.in.data())
				break
			}
			conn.in.r += n
			had = 0
			if final, err := w.take(&conn.resp); final || err != nil {
				return &conn.resp, err
			}
		}
		if err := w.more(); err != nil {
			if broken != nil && errors.Is(err, io.EOF) {
				err = broken
			}
			return nil, err
		}
	}
}

// take looks at a response, and passes an interim one on.
func (w *wait) take(resp *http1.Response) (final bool, err error) {
	x := w.x
	switch {
	case resp.Status >= 200:
		// From here on nobody sends the request again.
		return true, nil
	case resp.Status == http.StatusSwitchingProtocols:
		if x.req.Protocol == "" || resp.Protocol == "" {
			return false, errUnasked
		}
		return true, nil
	}
	if w.interims++; w.interims > maxInterims {
		return false, errInterim
	}
	if x.req.Minor == 0 {
		// RFC 9110 section 15.2: not to HTTP/1.0.
		return false, nil
	}
	x.continued = x.continued || resp.Status == http.StatusContinue
	x.interims++
	if err := x.toClient(resp.Append(nil, http1.Framing{})); err != nil {
		return false, err
	}
	return false, nil
}

// more reads more from the endpoint.
func (w *wait) more() error {
	in := &w.conn.in
	if in.r == in.w {
		in.r, in.w = headroom, headroom
	}
	if len(in.space()) == 0 {
		if in.r > headroom {
			in.compact()
		} else {
			in.enlarge(max(largeBuffer, w.conn.pool.cfg.Limits.Bytes))
		}
	}
	for {
		n, err := w.conn.sock.read(in.space(), w.until)
		in.w += n
		w.read += n
		if n > 0 {
			return nil
		}
		if err = w.judge(err); err != nil {
			return err
		}
	}
}

// judge tells what the end of a wait means; nil is to wait on.
func (w *wait) judge(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errWoken):
		if cause := w.x.cancelled(); cause != nil {
			return cause
		}
		if w.x.body.failed.Load() != nil {
			return errBody
		}
		return nil
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	}
	t := now()
	switch {
	case w.x.deadline != 0 && t >= w.x.deadline:
		return upstream.ErrNoAnswer
	case w.try != 0 && t >= w.try:
		return errTry
	case w.silent != 0 && t >= w.silent:
		return errSilence
	case w.x.gone():
		return errGone
	}
	w.look(t)
	return nil
}

// gone tells whether the client has closed its connection. What it has sent ahead hides that, as in net/http.
func (x *Exchange) gone() bool {
	if x.body.uploading || len(x.c.in.data()) > 0 {
		return false
	}
	_, gone := x.c.sock.quiet()
	return gone
}

// classify makes the error that decides what becomes of the request.
func (w *wait) classify(err error) *upstream.Error {
	e := w.x.fail(upstream.ResetBeforeHeaders, err)
	e.Unsent, e.Unanswered = w.wrote == 0, w.read == 0
	found := new(upstream.Error)
	_, malformed := errors.AsType[*http1.Error](err)
	switch {
	case errors.As(err, &found):
		e.Reason, e.Err = found.Reason, found.Err
	case errors.Is(err, errTry):
		e.Reason, e.Err = upstream.TryTimeout, fmt.Errorf("no answer within %s, the time for one attempt", time.Duration(w.try-w.began).Round(time.Millisecond))
	case errors.Is(err, upstream.ErrNoAnswer):
		e.Reason, e.Err = upstream.Deadline, upstream.ErrNoAnswer
	case errors.Is(err, errGone), errors.Is(err, errBody):
		e.Reason = upstream.ClientGone
	case malformed, errors.Is(err, errInterim):
		e.Reason = upstream.ProtocolError
	case errors.Is(err, errUnasked), errors.Is(err, errConnect):
		e.Reason = upstream.UpgradeFailed
	case errors.Is(err, net.ErrClosed):
		e.Err = errors.New("the connection was closed here")
	}
	e.Reused = e.Reason == upstream.ResetBeforeHeaders && e.Unanswered && w.conn.used > 1
	return e
}
