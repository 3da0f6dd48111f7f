package relay

import (
	"errors"
	"net/http"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Respond answers the request from here. Where the client has not sent all of its
// request, its connection ends with the answer. An error is an *upstream.Error: the client
// is gone, or has had a part of another answer already, after which nothing may come.
func (x *Exchange) Respond(status int, fields []message.Field, body string) error {
	if err := x.unbegun(); err != nil {
		return err
	}
	x.abandon()
	x.lastWord = true
	m := message.Response{Status: status, Fields: fields, Length: int64(len(body))}
	x.frame(m.HasBody(x.req.Method), m.Length, false)
	x.c.out.ensure()
	out := http1.AppendResponse((*x.c.out.mem)[:0], &m, x.framing)
	if x.framing.Length {
		out = append(out, body...)
		x.sent += int64(len(body))
	}
	return x.finished(x.toClient(out))
}

// unbegun fails where an answer has begun: no text of ours ever follows one.
func (x *Exchange) unbegun() error {
	if x.state == unanswered {
		return nil
	}
	x.state = broken
	return &upstream.Error{Reason: upstream.ClientGone, Err: errBegun}
}

var errBegun = errors.New("another answer has begun already")

// abandon ends what is under way upstream, before an answer of another kind.
func (x *Exchange) abandon() {
	x.body.stop()
	x.drop()
	x.last = x.last || !x.body.whole()
}

// finished notes how the writing of an answer ended, and gives err.
func (x *Exchange) finished(err error) error {
	x.state = answered
	if err != nil {
		x.state = broken
	}
	return err
}

// WriteHead begins an answer that comes from elsewhere, like an HTTP/2 endpoint:
// Write and Finish go on with it. Status 1xx is an interim response, after which another head follows.
func (x *Exchange) WriteHead(m *message.Response) error {
	if m.Status < 200 {
		if x.req.Minor == 0 {
			// RFC 9110 section 15.2: not to HTTP/1.0.
			return nil
		}
		x.interims++
		x.continued = x.continued || m.Status == http.StatusContinue
		return x.toClient(http1.AppendResponse(nil, m, http1.Framing{}))
	}
	if err := x.unbegun(); err != nil {
		return err
	}
	x.frame(m.HasBody(x.req.Method), m.Length, false)
	x.c.out.ensure()
	x.state = answering
	x.head = http1.AppendResponse((*x.c.out.mem)[:0], m, x.framing)
	err := x.toClient(x.head)
	if err != nil {
		x.state = broken
		x.sayHead(err)
	}
	return err
}

// Write writes more of the body after WriteHead.
func (x *Exchange) Write(p []byte) error {
	if len(p) == 0 || !x.bodied {
		return nil
	}
	x.sent += int64(len(p))
	if !x.framing.Chunked {
		x.left -= int64(len(p))
		return x.toClient(p)
	}
	return x.toClient(appendChunk((*x.c.out.mem)[:0], p))
}

// Finish ends the answer, with trailers where its coding has them.
func (x *Exchange) Finish(trailers []message.Field) error {
	x.last = x.last || !x.body.whole()
	switch {
	case x.framing.Length && x.left != 0:
		// Fewer bytes than were announced: the client must not take this for the end.
		x.state = broken
		return nil
	case x.framing.Chunked && x.bodied:
		return x.finished(x.toClient(http1.AppendLast(nil, trailers)))
	}
	return x.finished(nil)
}

// ReadBody gives the next part of the request's body, which is valid until the next call; nothing
// when all has been read. It is for requests that are not sent with Send, and may be called in another
// goroutine, which must have come back from it before Handler.Serve returns: StopBody sees to that. An
// error is an *upstream.Error.
func (x *Exchange) ReadBody() ([]byte, error) {
	b := &x.body
	if part := b.kept; len(part) > 0 {
		b.kept = nil
		b.lost.Store(true)
		return part, nil
	}
	b.lost.Store(true)
	for {
		if err := x.cancelled(); err != nil {
			return nil, err
		}
		if failed := b.failed.Load(); failed != nil {
			return nil, failed
		}
		if b.complete.Load() {
			return nil, nil
		}
		if b.halt.Load() {
			return nil, &upstream.Error{Reason: upstream.ClientGone, Err: errHalted}
		}
		data, failed := b.next()
		if failed != nil {
			b.failed.Store(failed)
			return nil, failed
		}
		if len(data) > 0 {
			return data, nil
		}
	}
}

var errHalted = errors.New("the answer came before the end of the request")

// StopBody makes ReadBody give up what it waits for; it may be called from anywhere.
func (x *Exchange) StopBody() {
	x.body.halt.Store(true)
	x.c.sock.wakeRead()
}

// Trailers are those of the request, once all of its body has been read.
func (x *Exchange) Trailers() []message.Field {
	if !x.body.chunked {
		return nil
	}
	return x.body.decoder.Trailers()
}

// ResponseTrailers are those of the response that Relay has passed on.
func (x *Exchange) ResponseTrailers() []message.Field { return x.response.Trailers() }
