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

// wait is one attempt's wait for its answer, or for more of that. It looks around now and then: whether its client is
// still there, and which of its times is over.
type wait struct {
	x    *Exchange
	conn *Conn
	// began is when it began; until the next time to look around; try the end of the attempt's own time, 0 for none.
	began, until, try instant
	// wrote and read count bytes, interims the 1xx responses.
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
	// errClosedHere stands for net.ErrClosed, whose text says less.
	errClosedHere = errors.New("the connection was closed here")
)

// plan begins the wait, or begins it anew when something has come.
func (w *wait) plan() {
	w.began = now()
	if w.silence > 0 {
		w.silent = w.began.after(w.silence)
	}
	w.planLook(w.began)
}

// planLook plans the next look around: at whichever of its times is over first, or whether the client is still there.
func (w *wait) planLook(t instant) {
	w.until = earliest(earliest(t.after(nextLook(w.began, t)), w.try), earliest(w.x.deadline, w.silent))
}

// nextLook is for how long not to look whether the client is there, at t in a wait that began then.
func nextLook(began, t instant) time.Duration {
	return min(max(time.Duration(t-began)/8, firstLook), lastLook)
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
			if final, err := w.accept(&conn.resp); final || err != nil {
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

// accept looks at the head of a response, and passes an interim one on; final is the last one, a change of protocols too.
func (w *wait) accept(resp *http1.Response) (final bool, err error) {
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
	in.makeRoom(w.conn.pool.cfg.Limits.Bytes)
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

// judge tells what the error of a read or a write means; nil is to wait on, with until set anew.
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
	w.planLook(t)
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
		e.Err = errClosedHere
	}
	e.Reused = e.Reason == upstream.ResetBeforeHeaders && e.Unanswered && w.conn.used > 1
	return e
}
