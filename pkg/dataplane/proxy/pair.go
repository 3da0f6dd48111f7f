package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// pair is the carrier of net/http: a request that its server gave, and the
// writer of the response to it.
type pair struct {
	http *HTTP
	w    http.ResponseWriter
	r    *http.Request
	ctx  context.Context //nolint:containedctx // the request's, as far as it has been bounded
	// ends are what ends the contexts that bound it.
	ends []func()
	// timed is w where the client has only so much time to take the response; nil without that.
	timed *timedWriter

	cluster *endpoints.Cluster
	conn    upstream.Conn
	body    *body
	stop    func()
	interim interim
	resp    *http.Response
	// endTry ends the context of the attempt that was answered; nil where it has none of its own.
	endTry func()
	sent   int64
	// near is the HTTP/1.1 client that the request comes from; nil for one of net/http's server.
	near *near
	// hop is the endpoint that it was sent to last.
	hop netip.AddrPort
}

func (p *pair) head() head {
	h := head{method: p.r.Method, authority: p.r.Host, length: p.r.ContentLength, grpc: isGRPC(p.r.Header.Get("Content-Type"))}
	for _, values := range p.r.Header {
		h.fields += len(values)
	}
	h.timeout, _ = grpcTimeout(p.r.Header.Get("Grpc-Timeout"))
	return h
}

func (p *pair) context() context.Context { return p.ctx }

func (p *pair) bound(at time.Time) {
	ctx, cancel := context.WithDeadline(p.ctx, at)
	p.ctx, p.ends = ctx, append(p.ends, cancel)
}

func (p *pair) cancellable() context.CancelCauseFunc {
	ctx, cancel := context.WithCancelCause(p.ctx)
	p.ctx, p.ends = ctx, append(p.ends, func() { cancel(nil) })
	return cancel
}

func (p *pair) toward(c *endpoints.Cluster) carrier {
	p.cluster = c
	if p.r.ContentLength == 0 || p.r.Body == nil || p.r.Body == http.NoBody {
		return p
	}
	p.body = &body{src: p.r.Body}
	if p.near != nil {
		// The relay has the limits.
		return p
	}
	if limit := p.http.MaxRequestBytes; limit > 0 {
		p.body.src = http.MaxBytesReader(p.w, p.r.Body, limit)
	}
	p.body.src, p.stop = p.http.Limits.body(p.body.src, p.w, p.r)
	return p
}

func (p *pair) acquire(ctx context.Context, lease *endpoints.Lease) (err error) {
	p.conn, err = lease.Upstream.Acquire(ctx)
	return err
}

func (p *pair) send(ctx context.Context, lease *endpoints.Lease, limit time.Duration) (answer, *upstream.Error) {
	if limit > 0 {
		bounded, cancel := context.WithCancelCause(ctx)
		timer := time.AfterFunc(limit, func() {
			cancel(&upstream.Error{Reason: upstream.TryTimeout, Err: fmt.Errorf("no answer within %s, the time for one attempt", limit)})
		})
		defer timer.Stop()
		// The answer's body is read in this context.
		ctx, p.endTry = bounded, func() { cancel(nil) }
	}
	p.hop = lease.Key.Address
	resp, err := p.conn.RoundTrip(p.outgoing(ctx, lease.Key))
	if err == nil {
		p.resp = resp
		return answer{resp.StatusCode, resp.Header}, nil
	}
	e := upstream.AsError(err)
	broken := p.body.failure()
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
	}
	p.tried()
	return answer{}, e
}

// tried ends the context of an attempt that is over.
func (p *pair) tried() {
	if p.endTry != nil {
		p.endTry()
		p.endTry = nil
	}
}

func (p *pair) peek() error {
	first := make([]byte, 512)
	n, err := p.resp.Body.Read(first)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n > 0 {
		p.resp.Body = &resumed{p.resp.Body, first[:n]}
	}
	return nil
}

func (p *pair) trailers() endpoints.Header { return p.resp.Trailer }

// smallBody is how much of an answer that nobody gets is read to keep its connection.
const smallBody = 16 << 10

func (p *pair) discard() {
	if n := p.resp.ContentLength; n >= 0 && n <= smallBody {
		_, _ = io.Copy(io.Discard, p.resp.Body)
	}
	_ = p.resp.Body.Close()
	p.tried()
}

func (p *pair) replayable() bool { return p.body.replayable() && !p.interim.any() }

func (p *pair) complete() bool { return p.body.complete() }

// accept is for nobody: a CONNECT does not come here.
func (p *pair) accept() (halfCloser, error) { panic("a tunnel over net/http") }

// switched is for nobody: HTTP/2 has no Upgrade (RFC 9113 section 8.6), and so none was asked for.
func (p *pair) switched() (up, client halfCloser, err error) {
	_ = p.resp.Body.Close()
	return nil, nil, &upstream.Error{Reason: upstream.UpgradeFailed, NextHop: p.hop, Err: errors.New("the upstream switched protocols unasked")}
}

func (p *pair) refuse(r refusal, last bool) {
	p.interim.stop()
	if p.near != nil {
		p.near.refuse(r, last)
		return
	}
	h := p.w.Header()
	for _, f := range r.fields {
		h.Set(f.Name, f.Value)
	}
	if r.text != "" {
		h.Set("Content-Length", strconv.Itoa(len(r.text)))
	}
	p.w.WriteHeader(r.status)
	if p.r.Method != http.MethodHead {
		_, _ = io.WriteString(p.w, r.text)
	}
}

// abort ends the client's stream: a gRPC call gets its status in the trailers,
// anything else can only break off, and then abort does not return.
func (p *pair) abort(e *upstream.Error) {
	switch {
	case p.near != nil:
		p.near.aborted = true
	case isGRPC(p.r.Header.Get("Content-Type")) && e.Reason != upstream.ClientGone:
		h := p.w.Header()
		h.Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(int(e.Reason.GRPC())))
		h.Set(http.TrailerPrefix+"Grpc-Message", e.GRPCMessage())
		h.Set(http.TrailerPrefix+"Proxy-Status", e.ProxyStatus())
	default:
		panic(http.ErrAbortHandler)
	}
}

func (p *pair) close() {
	p.interim.stop()
	if p.stop != nil {
		p.stop()
	}
	if p.timed != nil {
		p.timed.timer.Stop()
	}
	p.tried()
	for _, end := range p.ends {
		end()
	}
	if p.near != nil {
		p.near.close(p.body)
	}
}

// describe implements carrier.
func (p *pair) describe(e *entry) {
	e.Protocol, e.Method, e.Authority, e.Path = p.r.Proto, p.r.Method, p.r.Host, p.r.URL.Path
	e.TraceParent = p.r.Header.Get("Traceparent")
	e.BytesSent += p.sent
	if p.body != nil {
		e.BytesReceived += p.body.read.Load()
	}
	h := p.w.Header()
	for _, name := range []string{"Grpc-Status", "Trailer:Grpc-Status"} {
		if v := h[name]; len(v) > 0 {
			e.GRPCStatus = v[0]
			return
		}
	}
}

// relay copies a final response. Once its head is out, a failure can only abort.
func (p *pair) relay(ctx context.Context, last bool) *upstream.Error {
	p.body.answered()
	p.interim.stop()
	resp := p.resp
	defer func() { _ = resp.Body.Close() }()
	header := p.w.Header()
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
	if p.near != nil {
		p.near.begin(resp.ContentLength, last || !p.body.complete())
	}
	p.w.WriteHeader(resp.StatusCode)
	var err error
	if p.sent, err = copyBody(p.w, resp, p.r.Method); err != nil {
		return p.brokenOff(ctx, err)
	}
	for k, v := range resp.Trailer {
		if len(resp.Trailer) != announced {
			k = http.TrailerPrefix + k
		}
		header[k] = v
	}
	return nil
}

// brokenOff says why a body could not be copied to its end.
func (p *pair) brokenOff(ctx context.Context, err error) *upstream.Error {
	e, slow := upstream.AsError(err), p.timed.slow()
	switch {
	case slow != nil:
		e = slow
	case upstream.Ended(ctx):
		e = &upstream.Error{Reason: upstream.ContextReason(ctx), NextHop: e.NextHop, Err: context.Cause(ctx)}
	case errors.Is(err, errClientWrite) && e.Reason != upstream.SlowReader:
		e = &upstream.Error{Reason: upstream.ClientGone, Err: err}
	}
	return e
}

// outgoing is the request for one attempt.
func (p *pair) outgoing(ctx context.Context, to mesh.EndpointKey) *http.Request {
	url := *p.r.URL
	url.Scheme, url.Host, url.User = "http", to.Address.String(), nil
	out := &http.Request{
		Method: p.r.Method, URL: &url, Host: p.r.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: requestHeader(p.r), ContentLength: p.r.ContentLength, Trailer: p.r.Trailer,
	}
	if p.body != nil {
		out.Body = p.body.next()
	}
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		p.interim.pass(p.w, code, http.Header(h))
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
				return done, fmt.Errorf("%w: %w", errClientWrite, werr)
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

// resumed is a body of which some has been read.
type resumed struct {
	io.ReadCloser
	first []byte
}

func (r *resumed) Read(p []byte) (int, error) {
	if len(r.first) == 0 {
		return r.ReadCloser.Read(p)
	}
	n := copy(p, r.first)
	r.first = r.first[n:]
	return n, nil
}
