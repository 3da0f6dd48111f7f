package proxy

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// relayed is the carrier of an HTTP/1.1 request to endpoints of HTTP/1.1. It is used
// for one request of its connection after another.
type relayed struct {
	http *HTTP
	x    *relay.Exchange
	// conn is to be sent on; nil when it has been.
	conn *relay.Conn
	// lease is that of the answer which is being relayed, and done, made once, ends it.
	lease *endpoints.Lease
	done  func()
	// grpcStatus is that of an answer's head, for the access log.
	grpcStatus string
}

func (v *relayed) head() head {
	q := v.x.Request()
	h := headOf(&q.Request)
	// What else it asks for, a CONNECT of HTTP/1.1 is one.
	h.tunnel = q.Method == http.MethodConnect
	return h
}

func (v *relayed) context() context.Context { return v.x.Context() }

func (v *relayed) bound(at time.Time) {
	if before, ok := v.x.Context().Deadline(); !ok || at.Before(before) {
		v.x.SetDeadline(at)
	}
}

func (v *relayed) cancellable() context.CancelCauseFunc { return v.x.CancelFunc() }

func (v *relayed) toward(c *endpoints.Cluster) carrier {
	if c.Config().HTTP2 {
		return bridgeOf(v.http, v.x).toward(c)
	}
	return v
}

func (v *relayed) acquire(ctx context.Context, lease *endpoints.Lease) (err error) {
	if lease.HTTP1 == nil {
		return changedProtocol(lease)
	}
	v.conn, err = lease.HTTP1.Acquire(ctx)
	return err
}

// send sends the request; its errors of the client's side name no endpoint.
func (v *relayed) send(_ context.Context, _ *endpoints.Lease, limit time.Duration) (answer, *upstream.Error) {
	conn := v.conn
	v.conn = nil
	resp, err := v.x.Send(conn, limit)
	if err == nil {
		if v.http.AccessLog != nil {
			v.grpcStatus = strings.Clone(resp.Get("Grpc-Status"))
		}
		return answer{resp.Status, &resp.Response}, nil
	}
	e := upstream.AsError(err)
	switch e.Reason { //nolint:exhaustive // those of the request's body
	case upstream.BadBody, upstream.BodyTooLarge, upstream.BodyTimeout, upstream.Internal:
		// No endpoint has to do with it, and none will do better.
		return answer{}, &upstream.Error{Reason: e.Reason, Unanswered: e.Unanswered, Err: e.Err}
	case upstream.ClientGone:
		e.Unsent = false
	}
	return answer{}, e
}

// peek does nothing: gRPC is not spoken over HTTP/1.1.
func (v *relayed) peek() error { return nil }

func (v *relayed) trailers() endpoints.Header { return message.Fields(v.x.ResponseTrailers()) }

func (v *relayed) discard() { v.x.Discard() }

func (v *relayed) replayable() bool { return v.x.Replayable() }

func (v *relayed) complete() bool { return v.x.BodyComplete() }

func (v *relayed) relay(_ context.Context, lease *endpoints.Lease, last bool) *upstream.Error {
	if last || !v.x.BodyComplete() {
		// What the client may still send could not be told from another request's beginning (RFC 9112 section 9.3).
		v.x.CloseAfter()
	}
	if v.done == nil {
		v.done = func() { v.lease.Complete(v.trailers()) }
	}
	v.lease = lease
	if err := v.x.Relay(v.done); err != nil {
		return upstream.AsError(err)
	}
	return nil
}

// abort does nothing: the relay breaks off what is not complete.
func (v *relayed) abort(*upstream.Error) {}

func (v *relayed) refuse(a upstream.Answer, last bool) {
	if last {
		v.x.CloseAfter()
	}
	_ = v.x.Respond(a.Status, a.Fields, a.Text)
}

func (v *relayed) accept() (halfCloser, error) {
	t, err := v.x.Connect()
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (v *relayed) switched() (up, client halfCloser, err error) {
	c, s, err := v.x.Switch()
	if err != nil {
		return nil, nil, err
	}
	return s, c, nil
}

func (v *relayed) describe(e *entry) {
	describeExchange(e, v.x)
	e.BytesReceived += v.x.Received()
	e.BytesSent += v.x.Sent()
	e.GRPCStatus = v.grpcStatus
	if t := message.Fields(v.x.ResponseTrailers()).Get("Grpc-Status"); t != "" {
		e.GRPCStatus = strings.Clone(t)
	}
}

// describeExchange says what is known of a request of HTTP/1.1.
func describeExchange(e *entry, x *relay.Exchange) {
	q := x.Request()
	e.Protocol, e.Method, e.Authority = "HTTP/1.1", strings.Clone(q.Method), strings.Clone(q.Authority)
	if q.Minor == 0 {
		e.Protocol = "HTTP/1.0"
	}
	e.Path = pathOf(q.Path)
	e.TraceParent = strings.Clone(q.Get("Traceparent"))
}

func (v *relayed) close() {
	if v.conn != nil {
		// A defect of ours came between having it and sending on it.
		v.conn.Release()
		v.conn = nil
	}
}

// pathOf is the path of a request target, without escapes.
func pathOf(target string) string {
	path, _, _ := strings.Cut(target, "?")
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	return strings.Clone(path)
}
