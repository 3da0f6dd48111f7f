package proxy

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// bridge is the carrier of a request whose two sides speak different versions of HTTP. Its goroutine waits for
// the answer; another one sends the request's body, if that has one (upload).
//
//	client ── client1, client2 ──▶ bridge ── body ── upload ──▶ relay.Call, http2.Asking ── endpoint
//	                                 ◀────────── Head, Read ─────────────┘
//
// Its fields are its goroutine's, but for body, which both use.
type bridge struct {
	bridgeClient
	http    *HTTP
	request *message.Request
	ctx     context.Context //nolint:containedctx // the request's, as far as it has been bounded
	// ends are what ends the contexts that bound it.
	ends []func()
	// body is nil where the request has none; sentBody is what it reads.
	body     *body
	sentBody *clientBody
	// http2: the endpoints speak HTTP/2.
	http2 bool

	// open begins a call on the connection that acquire had, and unused gives that back instead; nil for none.
	open   func(*message.Request) (call, error)
	unused func()
	sent   *sending
	// head is that of the answer, until its body is read; first is what was read of that.
	head       *message.Response
	first      []byte
	passed     int64
	grpcStatus string
}

// bridgeClient is the client's side of a bridge: client1 or client2. Its methods are for the bridge's goroutine, but for
// read and finished, which are for who sends the body.
type bridgeClient interface {
	// read gives the next part of the request's body, valid until the next call; nothing at its end.
	read() ([]byte, error)
	// finished are the trailers after that.
	finished() []message.Field
	// interim passes on a 1xx.
	interim(m *message.Response)
	// seen tells whether one was passed on.
	seen() bool
	// begin begins the answer, write goes on, finish ends it. An error says that the client has gone, or that ctx has
	// ended, for a client that does not read.
	begin(m *message.Response, last bool) error
	write(ctx context.Context, p []byte) error
	finish(trailers []message.Field) error
	abort(e *upstream.Error)
	// refuse gives how many bytes of a body the answer has.
	refuse(a upstream.Answer, last bool) int64
	accept() (halfCloser, error)
	// stop ends read, for good.
	stop()
	// describeTo describes the request.
	describeTo(e *entry)
	end()
}

// call is a request on a connection to an endpoint: a *relay.Call, or an *http2.Asking.
type call interface {
	Write(p []byte) error
	Finish(trailers []message.Field) error
	Head() (*message.Response, error)
	Read() ([]byte, error)
	Trailers() []message.Field
	Break()
	End()
}

func (b *bridge) context() context.Context { return b.ctx }

func (b *bridge) bound(at time.Time) {
	ctx, cancel := context.WithDeadline(b.ctx, at)
	b.ctx, b.ends = ctx, append(b.ends, cancel)
}

func (b *bridge) cancellable() context.CancelCauseFunc {
	ctx, cancel := context.WithCancelCause(b.ctx)
	b.ctx, b.ends = ctx, append(b.ends, func() { cancel(nil) })
	return cancel
}

func (b *bridge) toward(c *endpoints.Cluster) carrier {
	b.http2 = c.Config().HTTP2
	if b.request.Length != 0 {
		b.sentBody = &clientBody{client: b.bridgeClient}
		b.body = &body{src: b.sentBody}
	}
	return b
}

func (b *bridge) peek() error {
	part, err := b.sent.Read()
	b.first = part
	return err
}

func (b *bridge) trailers() endpoints.Header {
	if b.sent == nil {
		return message.Fields(nil)
	}
	return message.Fields(b.sent.Trailers())
}

func (b *bridge) discard() {
	if b.body != nil && !b.body.complete() {
		b.sent.Break()
	}
	b.hangUp()
}

func (b *bridge) replayable() bool { return b.body.replayable() && !b.seen() }

func (b *bridge) complete() bool { return b.body.complete() }

// relay passes the answer on.
func (b *bridge) relay(ctx context.Context, lease *endpoints.Lease, last bool) *upstream.Error {
	hop := b.sent.hop
	b.body.answered()
	if err := b.begin(b.head, last || !b.body.complete()); err != nil {
		return clientGone(ctx, hop, err)
	}
	if err := b.copyBody(ctx, hop); err != nil {
		return err
	}
	trailers := b.sent.Trailers()
	if t := message.Fields(trailers).Get("grpc-status"); t != "" {
		b.grpcStatus = strings.Clone(t)
	}
	if b.body.complete() {
		// Whoever knows that the request is over finds its place on the connection free.
		b.hangUp()
	}
	lease.Complete(message.Fields(trailers))
	if err := b.finish(trailers); err != nil {
		return clientGone(ctx, hop, err)
	}
	return nil
}

// copyBody passes the answer's body on.
func (b *bridge) copyBody(ctx context.Context, hop netip.AddrPort) *upstream.Error {
	open, stop := b.sent.whileOpen(ctx)
	defer stop()
	for part := b.first; ; {
		if len(part) > 0 {
			if err := b.write(open, part); err != nil {
				if ctx.Err() == nil && errors.Is(context.Cause(open), errClosedHere) {
					return b.failure(ctx, &upstream.Error{Reason: upstream.ResetMidBody, NextHop: hop, Err: errClosedHere}, 0)
				}
				return clientGone(ctx, hop, err)
			}
			b.passed += int64(len(part))
		}
		var err error
		if part, err = b.sent.Read(); err != nil {
			return b.failure(ctx, upstream.AsError(err), 0)
		}
		if len(part) == 0 {
			return nil
		}
	}
}

// clientGone is the error of an answer that could not be written.
func clientGone(ctx context.Context, hop netip.AddrPort, err error) *upstream.Error {
	known, ok := errors.AsType[*upstream.Error](err)
	end := upstream.EndOf(ctx)
	switch {
	case end == upstream.Deadline:
		return (&upstream.Error{NextHop: hop}).Late(true)
	case end != upstream.None:
		return &upstream.Error{Reason: end, Err: err}
	case ok:
		return known
	}
	return &upstream.Error{Reason: upstream.ClientGone, Err: err}
}

// switched passes on that an endpoint of HTTP/1.1 has changed protocols for an extended CONNECT.
func (b *bridge) switched() (up, client halfCloser, err error) {
	k, fits := b.sent.call.(*relay.Call)
	v, asked := b.bridgeClient.(*client2)
	if !fits || !asked {
		return nil, nil, &upstream.Error{Reason: upstream.UpgradeFailed, Err: errors.New("the upstream switched protocols unasked")}
	}
	client, err = v.upgraded(b.head)
	if err != nil {
		return nil, nil, err
	}
	b.sent.detach()
	b.sent, b.head = nil, nil
	return k.Switch(), client, nil
}

func (b *bridge) describe(e *entry) {
	b.describeTo(e)
	e.BytesSent += b.passed
	if b.body != nil {
		e.BytesReceived += b.body.read.Load()
	}
	e.GRPCStatus = b.grpcStatus
}

// close ends what is left of both sides.
func (b *bridge) close() {
	if s := b.sent; s != nil {
		if !b.body.complete() {
			s.Break()
		}
		b.hangUp()
	}
	if b.open != nil {
		// A defect of ours came between.
		b.unused()
	}
	b.halt()
	b.end()
	for _, end := range b.ends {
		end()
	}
}

// halt ends the reading of the request's body, and waits for that end.
func (b *bridge) halt() {
	if b.body == nil {
		b.stop()
		return
	}
	b.body.attempt.Add(1)
	b.stop()
	b.body.mu.Lock()
	defer b.body.mu.Unlock()
}

func (b *bridge) refuse(a upstream.Answer, last bool) {
	b.halt()
	b.passed += b.bridgeClient.refuse(a, last)
}
