package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// relay sends the request and copies the answer.
func (x *exchange) relay(ctx context.Context) error {
	if x.r.ContentLength != 0 && x.r.Body != nil && x.r.Body != http.NoBody {
		x.body = &body{src: x.r.Body}
		if x.MaxRequestBytes > 0 {
			x.body.src = http.MaxBytesReader(x.w, x.r.Body, x.MaxRequestBytes)
		}
		var stop func()
		x.body.src, stop = x.Limits.body(x.body.src, x.w, x.r)
		defer stop()
	}
	resp, lease, err := x.send(ctx)
	if x.endTry != nil {
		defer x.endTry()
	}
	if err != nil {
		return err
	}
	x.firstByte = time.Since(x.began)
	x.body.answered()
	x.interim.stop()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return x.switchProtocols(resp, lease)
	}
	x.answer(ctx, resp, lease)
	return nil
}

// try sends the request once on a connection that is there. A failure has ended the lease.
func (x *exchange) try(ctx context.Context, lease *endpoints.Lease, conn upstream.Conn) (*http.Response, *upstream.Error) {
	lease.Connected()
	resp, err := conn.RoundTrip(x.outgoing(ctx, lease.Key))
	if err == nil {
		lease.Response(resp.StatusCode, resp.Header)
		if err = x.peek(resp); err == nil {
			return resp, nil
		}
		_ = resp.Body.Close()
	}
	e := upstream.AsError(err)
	broken := x.body.failure()
	switch {
	case upstream.ReasonOf(broken) == upstream.BodyTimeout:
		// The client's connection may look ended for that.
		e = bodyError(broken, e)
	case upstream.Ended(ctx):
		if cause, ok := errors.AsType[*upstream.Error](context.Cause(ctx)); ok {
			e.Err = cause.Err
		}
	case broken != nil:
		e = bodyError(broken, e)
	case lease.Overdue():
		e = overdue(lease)
	}
	gone := broken != nil || notTheirs(e.Reason)
	switch {
	case gone:
	case e.Reason == upstream.TryTimeout:
		lease.TimedOut()
	case e.Reason == upstream.ResetBeforeHeaders:
		lease.Broken()
	default:
		lease.Answered(false)
	}
	lease.End(gone)
	return nil, e
}

// notTheirs tells whether an attempt ended for a reason that is no fault of the endpoint's.
func notTheirs(r upstream.Reason) bool {
	switch r { //nolint:exhaustive // all others are
	case upstream.Deadline, upstream.ClientGone, upstream.EndpointEjected, upstream.EndpointRemoved, upstream.BreakerRequests,
		upstream.Draining, upstream.ConnectionAge, upstream.BodyTimeout, upstream.SlowReader:
		return true
	}
	return false
}

// bodyError is the error of an attempt that failed with err because the
// client's body broke off: it names the client's side, and no endpoint.
func bodyError(broken error, err *upstream.Error) *upstream.Error {
	if long, ok := errors.AsType[*http.MaxBytesError](broken); ok {
		return tooLarge(long.Limit)
	}
	if slow, ok := errors.AsType[*upstream.Error](broken); ok {
		return slow
	}
	e := &upstream.Error{Reason: upstream.BadBody, Unanswered: err.Unanswered, Err: fmt.Errorf("read request body: %w", broken)}
	if _, isNet := errors.AsType[net.Error](broken); isNet || errors.Is(broken, io.ErrUnexpectedEOF) {
		e.Reason = upstream.ClientGone
	}
	return e
}

// outgoing is the request for one attempt.
func (x *exchange) outgoing(ctx context.Context, to mesh.EndpointKey) *http.Request {
	url := *x.r.URL
	url.Scheme, url.Host, url.User = "http", to.Address.String(), nil
	out := &http.Request{
		Method: x.r.Method, URL: &url, Host: x.r.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: requestHeader(x.r), ContentLength: x.r.ContentLength, Trailer: x.r.Trailer,
	}
	if x.cluster.Config().HTTP2 {
		// HTTP/2 has no Upgrade (RFC 9113 section 8.6); a server may ignore
		// the wish, and so may we for it.
		delete(out.Header, "Connection")
		delete(out.Header, "Upgrade")
	}
	if x.body != nil {
		out.Body = x.body.next()
	}
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		// HTTP/1.0 does not know them (RFC 9110 section 15.2).
		if x.r.ProtoAtLeast(1, 1) {
			x.interim.pass(x.w, code, http.Header(h))
		}
		return nil
	}}
	return out.WithContext(httptrace.WithClientTrace(ctx, trace))
}

// interim relays 1xx responses (RFC 9110 section 15.2), which net/http reports
// from a goroutine of its own.
type interim struct {
	mu      sync.Mutex // guards all below, and the response writer until stopped
	seen    bool
	stopped bool
}

func (i *interim) pass(w http.ResponseWriter, code int, h http.Header) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return
	}
	i.seen = true
	own := w.Header()
	maps.Copy(own, endToEnd(h))
	w.WriteHeader(code)
	for k := range h {
		delete(own, k)
	}
}

func (i *interim) stop() {
	i.mu.Lock()
	i.stopped = true
	i.mu.Unlock()
}

func (i *interim) any() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.seen
}

// answer copies a final response. Once its headers are out, a failure can only abort.
func (x *exchange) answer(ctx context.Context, resp *http.Response, lease *endpoints.Lease) {
	ok := true
	defer func() { lease.End(ok) }()
	defer func() { _ = resp.Body.Close() }()
	header := x.w.Header()
	maps.Copy(header, endToEnd(resp.Header))
	if _, ok := header["Content-Type"]; !ok {
		// net/http's server would guess one.
		header["Content-Type"] = nil
	}
	if len(resp.Trailer) > 0 {
		names := make([]string, 0, len(resp.Trailer))
		for k := range resp.Trailer {
			names = append(names, k)
		}
		header.Set("Trailer", strings.Join(names, ", "))
	}
	announced := len(resp.Trailer)
	x.status = resp.StatusCode
	x.farewell(lease.Removed() || x.unread())
	x.w.WriteHeader(resp.StatusCode)
	var err error
	if x.sent, err = copyBody(x.w, resp, x.r.Method); err != nil {
		e := x.brokenOff(ctx, err, lease)
		if ok = notTheirs(e.Reason); !ok {
			lease.BrokenOff()
		}
		x.abort(e)
		return
	}
	lease.Trailers(resp.Trailer)
	for k, v := range resp.Trailer {
		if len(resp.Trailer) != announced {
			k = http.TrailerPrefix + k
		}
		header[k] = v
	}
}

// brokenOff says why a body could not be copied to its end.
func (x *exchange) brokenOff(ctx context.Context, err error, lease *endpoints.Lease) *upstream.Error {
	e, slow := upstream.AsError(err), x.timed.slow()
	switch {
	case slow != nil:
		e = slow
	case upstream.Ended(ctx):
		e = &upstream.Error{Reason: upstream.ContextReason(ctx), NextHop: lease.Key.Address, Err: context.Cause(ctx)}
	case errors.Is(err, errClientWrite):
		e = &upstream.Error{Reason: upstream.ClientGone, Err: err}
	case lease.Overdue():
		e = overdue(lease)
	}
	return e
}

var errClientWrite = errors.New("write to the client")

// copyBody copies as it comes: what was read is flushed at once, unless the
// response is complete with it. It gives how much was copied.
func copyBody(w http.ResponseWriter, resp *http.Response, method string) (done int64, err error) {
	if resp.ContentLength == 0 || method == http.MethodHead || resp.Body == nil {
		// Nothing may be flushed here: a gRPC response that ends with its
		// headers must end with its headers.
		_, err := io.Copy(io.Discard, resp.Body)
		return 0, err
	}
	flusher := http.NewResponseController(w)
	if resp.ContentLength < 0 {
		_ = flusher.Flush()
	}
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := resp.Body.Read(*buf)
		if n > 0 {
			if _, werr := w.Write((*buf)[:n]); werr != nil {
				return done, errClientWrite
			}
			done += int64(n)
			if done != resp.ContentLength {
				if flusher.Flush() != nil {
					return done, errClientWrite
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
}

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
