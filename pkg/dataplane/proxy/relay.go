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
	"slices"
	"strings"
	"sync"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	// maxDials bounds how many endpoints a request may find dead. A failed
	// dial costs nothing and ejects, so it may be more than maxSends.
	maxDials = 10
	// maxSends bounds how often a request may be written.
	maxSends = 3
)

// relay sends the request and copies the answer.
func (x *exchange) relay(ctx context.Context) error {
	if x.r.ContentLength != 0 && x.r.Body != nil && x.r.Body != http.NoBody {
		x.body = &body{src: x.r.Body}
	}
	resp, lease, err := x.send(ctx)
	if err != nil {
		return err
	}
	x.body.answered()
	x.interim.stop()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return x.switchProtocols(resp, lease)
	}
	x.answer(ctx, resp, lease)
	return nil
}

// send tries endpoints until one answers. One that may have worked on the
// request does not get it again.
func (x *exchange) send(ctx context.Context) (*http.Response, *endpoints.Lease, error) {
	var (
		tried, sent  []mesh.EndpointKey
		last, broke  error
		dials, sends int
	)
	hash := clientHash(x.r.RemoteAddr)
	for {
		lease, err := x.cluster.Acquire(ctx, endpoints.Request{Hash: hash, Tried: tried, Sent: sent, Cancel: x.cancel})
		switch {
		case err == nil:
		case errors.Is(err, endpoints.ErrAllTried) && len(tried) > len(sent):
			// All have been to; the last resort is to go round again.
			tried = slices.Clone(sent)
			continue
		case len(sent) > 0 && !upstream.Ended(ctx):
			// What happened to it says more than that there is nowhere else to go.
			return nil, nil, broke
		default:
			return nil, nil, err
		}
		if last != nil {
			x.Metrics.retried(x.label, upstream.ReasonOf(last))
		}
		conn, err := lease.Upstream.Acquire(ctx)
		if err != nil {
			last = err
			reason := upstream.ReasonOf(err)
			lease.DialFailed(reason)
			dials++
			if dials >= maxDials || !reason.Dial() && reason != upstream.EndpointRemoved {
				return nil, nil, last
			}
		} else {
			resp, err := x.try(ctx, lease, conn)
			if err == nil {
				return resp, lease, nil
			}
			last = err
			sends++
			if sends >= maxSends || !x.repeatable(err) {
				return nil, nil, last
			}
			if e := asError(err); !e.Unsent && !e.Reused {
				sent, broke = append(sent, lease.Key), err
			}
		}
		tried = append(tried, lease.Key)
	}
}

// try sends the request once on a connection that is there. A failure has ended the lease.
func (x *exchange) try(ctx context.Context, lease *endpoints.Lease, conn upstream.Conn) (*http.Response, error) {
	lease.Connected()
	resp, err := conn.RoundTrip(x.outgoing(ctx, lease.Key))
	if err == nil {
		lease.Response(resp.StatusCode, resp.Header)
		return resp, nil
	}
	broken := x.body.failure()
	if broken != nil && (upstream.ReasonOf(broken) == upstream.BodyTimeout || !upstream.Ended(ctx)) {
		err = bodyError(broken, err)
	}
	reason := upstream.ReasonOf(err)
	// None of these is the endpoint's fault.
	gone := broken != nil || reason == upstream.Deadline || reason == upstream.ClientGone ||
		reason == upstream.EndpointEjected || reason == upstream.BreakerRequests
	switch {
	case gone:
	case reason == upstream.ResetBeforeHeaders:
		lease.Broken()
	default:
		lease.Answered(false)
	}
	lease.End(gone)
	return nil, err
}

// bodyError is the error of an attempt that failed with err because the
// client's body broke off: it names the client's side, and no endpoint.
func bodyError(broken, err error) error {
	if e, ok := errors.AsType[*upstream.Error](broken); ok {
		return e
	}
	e := &upstream.Error{Reason: upstream.BadBody, Unanswered: asError(err).Unanswered, Err: fmt.Errorf("read request body: %w", broken)}
	if _, isNet := errors.AsType[net.Error](broken); isNet || errors.Is(broken, io.ErrUnexpectedEOF) {
		e.Reason = upstream.ClientGone
	}
	return e
}

// repeatable tells whether the request may be sent again after err.
func (x *exchange) repeatable(err error) bool {
	e := asError(err)
	if !x.body.replayable() || x.interim.any() {
		return false
	}
	if e.Reason == upstream.Deadline || e.Reason == upstream.ClientGone || e.Reason == upstream.BadBody || e.Reason == upstream.BodyTimeout {
		return false
	}
	if e.Unsent {
		return true
	}
	return e.Reason == upstream.ResetBeforeHeaders && e.Unanswered && idempotent(x.r.Method) && upgrade(x.r.Header) == ""
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
		x.interim.pass(x.w, code, http.Header(h))
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
	x.w.WriteHeader(resp.StatusCode)
	if err := copyBody(x.w, resp, x.r.Method); err != nil {
		switch {
		case errors.Is(err, errClientWrite):
			x.abort(upstream.ClientGone)
		case upstream.Ended(ctx):
			x.abort(upstream.ContextReason(ctx))
		}
		ok = false
		x.abort(upstream.ResetMidBody)
	}
	lease.Trailers(resp.Trailer)
	for k, v := range resp.Trailer {
		if len(resp.Trailer) != announced {
			k = http.TrailerPrefix + k
		}
		header[k] = v
	}
}

var errClientWrite = errors.New("write to the client")

// copyBody copies as it comes: what was read is flushed at once, unless the
// response is complete with it.
func copyBody(w http.ResponseWriter, resp *http.Response, method string) error {
	if resp.ContentLength == 0 || method == http.MethodHead || resp.Body == nil {
		// Nothing may be flushed here: a gRPC response that ends with its
		// headers must end with its headers.
		_, err := io.Copy(io.Discard, resp.Body)
		return err
	}
	flusher := http.NewResponseController(w)
	if resp.ContentLength < 0 {
		_ = flusher.Flush()
	}
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	var done int64
	for {
		n, err := resp.Body.Read(*buf)
		if n > 0 {
			if _, werr := w.Write((*buf)[:n]); werr != nil {
				return errClientWrite
			}
			done += int64(n)
			if done != resp.ContentLength {
				if flusher.Flush() != nil {
					return errClientWrite
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
