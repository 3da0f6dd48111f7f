package relay

import (
	"errors"
	"net/http"
	"os"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/linger"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

var errLateHead = &http1.Error{Status: http.StatusRequestTimeout, Text: "the head did not come in time"}

// refuse answers what is not a request, and ends the connection: nobody can know where the next one would begin.
func (c *Server) refuse(err error) {
	found, ok := errors.AsType[*http1.Error](err)
	if !ok {
		return
	}
	e := c.refused(found)
	a := e.Answer(false)
	m := message.Response{Status: found.Status, Length: int64(len(a.Text)), Fields: a.Fields}
	b := append(http1.AppendResponse(nil, &m, http1.Framing{Length: true, Close: true}), a.Text...)
	if _, err := c.sock.write(b, fromNow(lastWordTime)); err == nil {
		c.linger()
	}
}

// refused tells Refused of what is not a request.
func (c *Server) refused(err *http1.Error) *upstream.Error {
	e := &upstream.Error{Reason: upstream.Malformed, Unsent: true, Unanswered: true, Err: err}
	switch err.Status {
	case http.StatusRequestTimeout:
		e.Reason = upstream.HeaderTimeout
	case http.StatusRequestHeaderFieldsTooLarge:
		e.Reason = upstream.HeaderLimit
	}
	if c.cfg.Refused != nil {
		c.cfg.Refused(c.sock.RemoteAddr(), err.Status, e)
	}
	return e
}

// linger lets the client read what was written last: a connection that is closed
// with unread bytes in it is reset, and the client may lose the response with it.
func (c *Server) linger() {
	half, ok := c.sock.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.in.ensure()
	w := linger.Watch{Conn: c.sock.Conn}
	for n, left := 0, lingerBytes; left > 0; left -= n {
		d, more := w.Next(n)
		if !more {
			return
		}
		var err error
		n, err = c.sock.read((*c.in.mem)[headroom:], fromNow(d))
		if err != nil && !errors.Is(err, errWoken) && !errors.Is(err, os.ErrDeadlineExceeded) || c.cutBy.Load() != nil {
			return
		}
	}
}

// lingerBytes bounds how much of what still comes is thrown away.
const lingerBytes = 16 << 20
