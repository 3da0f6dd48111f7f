package proxy

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// near is a client of HTTP/1.1 whose request goes to an endpoint of HTTP/2: it
// is the http.ResponseWriter of a pair, and the body of its request.
type near struct {
	x *relay.Exchange
	p *pair
	// header is that of the response; begun: the final one is out. aborted: it must not come to an end.
	header         http.Header
	begun, aborted bool
	// length is that of the response's body, below 0 when only its end will tell.
	length int64
	// rest is what was read of the request's body and not taken; it belongs to who reads.
	rest []byte
	// asked: the client has been told to go on. It is guarded by the pair's interim.mu.
	asked bool
}

// pairOf makes a pair of a request that came in HTTP/1.1.
func pairOf(ctx context.Context, h *HTTP, x *relay.Exchange) *pair {
	n := &near{x: x, header: http.Header{}, length: -1}
	n.p = &pair{http: h, w: n, r: n.request(ctx), ctx: ctx, near: n}
	return n.p
}

// request is the request in net/http's terms. Its strings outlive the exchange.
func (n *near) request(ctx context.Context) *http.Request {
	q := n.x.Request()
	r := &http.Request{
		Method: strings.Clone(q.Method), URL: &url.URL{}, Host: strings.Clone(q.Authority), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: q.Minor,
		Header: make(http.Header, len(q.Fields)), ContentLength: q.Length, RemoteAddr: n.x.RemoteAddr().String(),
	}
	if q.Minor == 0 {
		r.Proto = "HTTP/1.0"
	}
	if u, err := url.ParseRequestURI(strings.Clone(q.Path)); err == nil {
		r.URL = u
	} else {
		r.URL.Opaque = strings.Clone(q.Path)
	}
	for _, f := range q.Fields {
		r.Header.Add(strings.Clone(f.Name), strings.Clone(f.Value))
	}
	if q.Trailers {
		r.Header.Set("Te", "trailers")
	}
	for _, line := range r.Header["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			if r.Trailer == nil {
				r.Trailer = http.Header{}
			}
			r.Trailer[http.CanonicalHeaderKey(strings.TrimSpace(name))] = nil
		}
	}
	if q.Length != 0 {
		r.Body = n
	}
	return r.WithContext(ctx)
}

// Read implements io.Reader for the request's body.
func (n *near) Read(b []byte) (int, error) {
	if len(n.rest) == 0 {
		n.goOn()
		part, err := n.x.ReadBody()
		if err != nil {
			return 0, err
		}
		if len(part) == 0 {
			n.takeTrailers()
			return 0, io.EOF
		}
		n.rest = part
	}
	c := copy(b, n.rest)
	n.rest = n.rest[c:]
	return c, nil
}

// goOn tells a client that waits for it to send the body (RFC 9110 section 10.1.1), unless the endpoint has.
func (n *near) goOn() {
	i := &n.p.interim
	i.mu.Lock()
	defer i.mu.Unlock()
	if n.asked || i.stopped || !n.x.Request().Expect || n.x.BodyComplete() {
		return
	}
	n.asked = true
	_ = n.x.WriteHead(&message.Response{Status: http.StatusContinue})
}

func (n *near) takeTrailers() {
	for _, f := range n.x.Trailers() {
		if n.p.r.Trailer != nil {
			n.p.r.Trailer.Add(strings.Clone(f.Name), strings.Clone(f.Value))
		}
	}
}

// Close implements io.Closer; the relay ends the body.
func (n *near) Close() error { return nil }

// Header implements http.ResponseWriter.
func (n *near) Header() http.Header { return n.header }

// begin says what WriteHeader cannot know.
func (n *near) begin(length int64, last bool) {
	n.length = length
	if last {
		n.x.CloseAfter()
	}
}

// WriteHeader implements http.ResponseWriter.
func (n *near) WriteHeader(status int) {
	m := message.Response{Status: status, Length: n.length, Fields: fieldsOf(n.header)}
	if status < 200 {
		if status == http.StatusContinue && n.asked {
			return
		}
		n.asked = n.asked || status == http.StatusContinue
		m.Length = 0
		_ = n.x.WriteHead(&m)
		return
	}
	if n.p.r.Method == http.MethodHead || status == http.StatusNotModified || status == http.StatusNoContent {
		m.Length = 0
	}
	n.begun = true
	_ = n.x.WriteHead(&m)
}

func fieldsOf(h http.Header) []message.Field {
	var all []message.Field
	for k, values := range h {
		if strings.HasPrefix(k, http.TrailerPrefix) {
			continue
		}
		for _, v := range values {
			all = append(all, message.Field{Name: strings.ToLower(k), Value: v})
		}
	}
	return all
}

// Write implements http.ResponseWriter.
func (n *near) Write(b []byte) (int, error) {
	if err := n.x.Write(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// FlushError is what http.ResponseController flushes by; all is written already.
func (n *near) FlushError() error { return nil }

// refuse answers with an error of ours.
func (n *near) refuse(r refusal, last bool) {
	// Whoever reads the body must have done so before the relay looks at it.
	n.halt(n.p.body)
	if last {
		n.x.CloseAfter()
	}
	_ = n.x.Respond(r.status, r.fields, r.text)
}

// halt ends the reading of the request's body, and waits for that end.
func (n *near) halt(b *body) {
	if b == nil {
		return
	}
	b.attempt.Add(1)
	if !n.x.BodyComplete() {
		n.x.StopBody()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
}

// close ends the answer, unless it must break off.
func (n *near) close(b *body) {
	n.halt(b)
	if !n.begun || n.aborted {
		return
	}
	var trailers []message.Field
	for k, values := range n.header {
		name, ok := strings.CutPrefix(k, http.TrailerPrefix)
		if !ok && !n.announced(k) {
			continue
		}
		for _, v := range values {
			trailers = append(trailers, message.Field{Name: strings.ToLower(name), Value: v})
		}
	}
	_ = n.x.Finish(trailers)
}

// announced tells whether the field Trailer names k, whose values are in the trailers then.
func (n *near) announced(k string) bool {
	for _, line := range n.header["Trailer"] {
		for name := range strings.SplitSeq(line, ", ") {
			if name == k {
				return true
			}
		}
	}
	return false
}
