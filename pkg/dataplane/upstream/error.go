package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/http2"
)

// Error is a failure of the proxy's own making or finding.
type Error struct {
	Reason Reason
	// NextHop is the endpoint it happened on; invalid when there was none.
	NextHop netip.AddrPort
	// Unsent is true when nothing of the request can have been processed: the
	// dial failed, no byte was written, or the peer said so (REFUSED_STREAM,
	// or a GOAWAY below the stream's id: RFC 9113 sections 6.8 and 8.7).
	Unsent bool
	// Unanswered is true when no byte of a response has come.
	Unanswered bool
	// Reused is true when an HTTP/1.1 connection broke that had carried a
	// request before, and no byte came for this one: then its server most
	// likely took it to be idle and closed it (RFC 9112 section 9.3.1). It is no
	// proof: a server that died at its work looks the same.
	Reused bool
	Err    error
}

// Error gives "LAYER: REASON: IP:PORT: cause", leaving out what is not known.
func (e *Error) Error() string {
	text := string(e.Reason.Layer()) + ": " + string(e.Reason)
	if e.NextHop.IsValid() {
		text += ": " + e.NextHop.String()
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Removed is the error of a request for an endpoint that takes no new ones: it has left its cluster.
func Removed(endpoint netip.AddrPort) *Error {
	return &Error{Reason: EndpointRemoved, NextHop: endpoint, Unsent: true, Unanswered: true}
}

// TooLarge is the error of a request whose body is longer than the limit in bytes.
func TooLarge(limit int64) *Error {
	return &Error{Reason: BodyTooLarge, Unanswered: true, Err: fmt.Errorf("the request's body is longer than %d bytes", limit)}
}

// ReasonOf gives the reason in err; ProtocolError for an error that has none.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	if err == nil {
		return None
	}
	return ProtocolError
}

// AsError gives the *Error in err, or makes one of it, with ReasonOf's reason.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Reason: ReasonOf(err), Err: err}
}

// dialError classifies a failed dial. ctx is the caller's: its end is not the
// endpoint's fault.
func dialError(ctx context.Context, addr netip.AddrPort, err error) *Error {
	e := &Error{NextHop: addr, Unsent: true, Unanswered: true, Err: fmt.Errorf("dial %s: %w", addr, plain(err))}
	switch {
	case ctx.Err() != nil:
		e.Reason = EndOf(ctx)
	case exhausted(err):
		// We cannot dial anybody, which says nothing of this endpoint.
		e.Reason = ConnectionLimit
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Reason = ConnectRefused
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		e.Reason = ConnectTimeout
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		e.Reason = ConnectUnroutable
	default:
		e.Reason = ConnectFailed
	}
	return e
}

// exhausted tells whether this process or host has no descriptor or memory left for a socket (socket(2)).
func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// plain takes net's own "dial tcp IP:PORT:" off, so that it is not said twice.
func plain(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return op.Err
	}
	return err
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

// EndOf is why a request's ctx has ended, None where it has not: the reason of
// its cause where we ended it with an *Error, Deadline where its time is over,
// ClientGone otherwise. Its time is over by the clock, though the timer may be
// late: on a busy machine that of a peer which knows the deadline too (gRPC
// servers do) may fire first.
func EndOf(ctx context.Context) Reason {
	// One look, since the timer may fire at any moment.
	cause := context.Cause(ctx)
	if e, ok := errors.AsType[*Error](cause); ok {
		return e.Reason
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return Deadline
	}
	if cause != nil {
		return ClientGone
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= 0 {
		return Deadline
	}
	return None
}

// What a request waited for when its time was over.
var (
	ErrNoConnection = errors.New("no connection within the time for the request")
	ErrNoAnswer     = errors.New("no answer within the time for the request")
	ErrNoEnd        = errors.New("the answer did not end within the time for the request")
)

// Late gives e as the error of a request whose time was over before e came about: its cause is
// what was waited for, which is the rest of the answer if that has begun. The cause of one that
// was never sent stays: it tells what kept it.
func (e *Error) Late(begun bool) *Error {
	next := *e
	next.Reason = Deadline
	switch {
	case begun:
		next.Err = ErrNoEnd
	case !e.Unsent || e.Err == nil:
		next.Err = ErrNoAnswer
	}
	return &next
}

// cancelMargin is how long before the deadline an endpoint may cancel for it:
// clocks and roundings differ, and nothing else makes a server cancel.
const cancelMargin = 50 * time.Millisecond

// DueTo tells whether the endpoint cancelled a stream for the request's deadline, which gRPC servers know
// too and may find over first. The zero time is no deadline.
func (e *Error) DueTo(deadline time.Time) bool {
	reset, ok := errors.AsType[http2.StreamError](e.Err)
	return ok && reset.Code == http2.ErrCodeCancel && !deadline.IsZero() && time.Until(deadline) <= cancelMargin
}

// Shed tells whether the endpoint refused this one stream (REFUSED_STREAM): it
// has too much to do. One that winds a connection up with a GOAWAY has not.
func (e *Error) Shed() bool {
	_, isStream := errors.AsType[http2.StreamError](e.Err)
	return e.Reason == StreamRefused && isStream
}
