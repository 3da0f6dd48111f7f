package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// clientBody is the request's body as a reader.
type clientBody struct {
	client bridgeClient
	rest   []byte
	// trailers came at its end. They are copies: who reads that end may be slower than the client's connection, which goes
	// on to its next request.
	trailers []message.Field
}

// Read implements io.Reader.
func (r *clientBody) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		part, err := r.client.read()
		if err != nil {
			return 0, err
		}
		if len(part) == 0 {
			for _, f := range r.client.finished() {
				r.trailers = append(r.trailers, message.Field{Name: strings.Clone(f.Name), Value: strings.Clone(f.Value), Sensitive: f.Sensitive})
			}
			return 0, io.EOF
		}
		r.rest = part
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// sending is a call with the upload of its body. It ends when both have.
type sending struct {
	call
	// hop is the endpoint.
	hop netip.AddrPort
	// left is how many of the two goroutines are still at it: who waits for the answer, and who uploads.
	left atomic.Int32
	// over: the time for the attempt was.
	over atomic.Bool
	// defect is what the upload met with; nil for none.
	defect atomic.Pointer[upstream.Error]
	// unhook undo what would break the call off.
	unhook []func() bool
}

var errClosedHere = errors.New("the connection was closed here")

// whileOpen gives a context that ends with ctx, and when the call's connection is closed from here: a client that does
// not read would else be waited for at the end of the endpoint's drain too. One of HTTP/2 has its own way to say so.
func (s *sending) whileOpen(ctx context.Context) (context.Context, func()) {
	k, ok := s.call.(*relay.Call)
	if !ok {
		return ctx, func() {}
	}
	open, end := context.WithCancelCause(ctx)
	undo := k.OnClose(func() { end(errClosedHere) })
	return open, func() {
		undo()
		end(nil)
	}
}

// done is called by each of the two when it has done with the call.
func (s *sending) done() {
	if s.left.Add(-1) == 0 {
		s.End()
	}
}

// detach keeps everything that might from breaking the call off.
func (s *sending) detach() {
	for _, stop := range s.unhook {
		stop()
	}
}

// survive is deferred by the upload: a panic in it is the end of the call.
func (s *sending) survive(h *HTTP) {
	if v := recover(); v != nil {
		s.defect.Store(h.defect("", v))
		s.Break()
	}
}

// within breaks the call off after limit; nil where there is none.
func (s *sending) within(limit time.Duration) *time.Timer {
	if limit <= 0 {
		return nil
	}
	return time.AfterFunc(limit, func() {
		s.over.Store(true)
		s.Break()
	})
}

// send opens the call, has the body uploaded, and waits for the head of the answer.
func (b *bridge) send(ctx context.Context, lease *endpoints.Lease, limit time.Duration) (answer, *upstream.Error) {
	c, err := b.open(b.request)
	b.open = nil
	if err != nil {
		return answer{}, upstream.AsError(err)
	}
	s := &sending{call: c, hop: lease.Key.Address}
	b.sent = s
	s.left.Store(1)
	s.unhook = append(s.unhook, context.AfterFunc(ctx, c.Break))
	timer := s.within(limit)
	if timer != nil {
		defer timer.Stop()
	}
	if b.body != nil {
		s.left.Store(2)
		src := b.body.next()
		go b.upload(s, src)
	}
	m, err := b.finalHead(c)
	if err == nil && timer != nil && !timer.Stop() {
		// The call is being broken off, or will be at once.
		s.over.Store(true)
		err = &upstream.Error{Reason: upstream.ResetBeforeHeaders, NextHop: s.hop}
	}
	if err != nil {
		e := b.failure(ctx, upstream.AsError(err), limit)
		b.hangUp()
		return answer{}, e
	}
	b.head = m
	b.grpcStatus = strings.Clone(m.Get("grpc-status"))
	return answer{m.Status, m}, nil
}

// finalHead waits for the head of the answer, and passes the interim ones before it on.
func (b *bridge) finalHead(c call) (*message.Response, error) {
	for {
		m, err := c.Head()
		if err != nil || m.Status >= 200 || m.Status == http.StatusSwitchingProtocols {
			return m, err
		}
		b.interim(m)
	}
}

// upload sends the body until it ends, or another attempt has it.
func (b *bridge) upload(s *sending, src io.Reader) {
	defer s.done()
	defer s.survive(b.http)
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := src.Read(*buf)
		if n > 0 && s.Write((*buf)[:n]) != nil {
			// Whoever waits for the answer finds out, unless that has come already.
			return
		}
		switch {
		case errors.Is(err, io.EOF):
			_ = s.Finish(b.sentBody.trailers)
			return
		case errors.Is(err, errBodyMoved):
			return
		case err != nil:
			s.Break()
			return
		}
	}
}

// failure is the error of an attempt that failed with e.
func (b *bridge) failure(ctx context.Context, e *upstream.Error, limit time.Duration) *upstream.Error {
	broken, defect, end := b.body.failure(), b.sent.defect.Load(), upstream.EndOf(ctx)
	switch {
	case defect != nil:
		return defect
	case upstream.ReasonOf(broken) == upstream.BodyTimeout:
		// The client's connection may look ended for that.
		return bodyError(broken, e)
	case end != upstream.None:
		next := *e
		next.Reason, next.Unsent = end, false
		if end == upstream.Deadline {
			return next.Late(b.head != nil)
		}
		if cause, ok := errors.AsType[*upstream.Error](context.Cause(ctx)); ok {
			next.Err = cause.Err
		} else {
			next.Err = context.Cause(ctx)
		}
		return &next
	case broken != nil:
		return bodyError(broken, e)
	case e.DueTo(deadlineOf(ctx)):
		return e.Late(b.head != nil)
	case b.sent.over.Load():
		next := tryTimeout(limit)
		next.NextHop, next.Unanswered = e.NextHop, e.Unanswered
		return next
	}
	return e
}

// deadlineOf is the deadline of ctx; the zero time where it has none.
func deadlineOf(ctx context.Context) time.Time {
	at, _ := ctx.Deadline()
	return at
}

// bodyError is the error of an attempt that failed with err because the
// client's body broke off: it names the client's side, and no endpoint.
func bodyError(broken error, err *upstream.Error) *upstream.Error {
	if known, ok := errors.AsType[*upstream.Error](broken); ok {
		return &upstream.Error{Reason: known.Reason, Unanswered: err.Unanswered, Err: known.Err}
	}
	return &upstream.Error{Reason: upstream.ClientGone, Unanswered: err.Unanswered, Err: fmt.Errorf("read request body: %w", broken)}
}

// hangUp ends the call. What still uploads does not hear of it, and stops when it has something to send.
func (b *bridge) hangUp() {
	s := b.sent
	if s == nil {
		return
	}
	b.sent, b.head, b.first = nil, nil, nil
	s.detach()
	s.done()
}

// acquire has a place at the endpoint. Over HTTP/2 that is with the request's head, over HTTP/1.1 a connection.
func (b *bridge) acquire(ctx context.Context, lease *endpoints.Lease) error {
	switch {
	case b.http2 != (lease.HTTP2 != nil):
		return changedProtocol(lease)
	case b.http2:
		k, err := lease.HTTP2.Ask(ctx, b.request, lease.Patient())
		if err != nil {
			return err
		}
		b.open, b.unused = func(*message.Request) (call, error) { return k, nil }, k.End
		return nil
	}
	c, err := lease.HTTP1.Acquire(ctx)
	if err != nil {
		return err
	}
	b.open, b.unused = func(m *message.Request) (call, error) { return openHTTP1(c, m) }, c.Release
	return nil
}

// openHTTP1 begins a request of another version on a connection of HTTP/1.1.
func openHTTP1(c *relay.Conn, m *message.Request) (call, error) {
	out := *m
	out.Fields = oneCookie(m.Fields)
	k, err := c.Call(&out, time.Time{})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// oneCookie gives the fields with one cookie, which HTTP/2 may split (RFC 9113 section 8.2.3).
func oneCookie(fields []message.Field) []message.Field {
	var all []string
	for _, f := range fields {
		if f.Name == "cookie" {
			all = append(all, f.Value)
		}
	}
	if len(all) < 2 {
		return fields
	}
	out := slices.DeleteFunc(slices.Clone(fields), func(f message.Field) bool { return f.Name == "cookie" })
	return append(out, message.Field{Name: "cookie", Value: strings.Join(all, "; ")})
}

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
