package proxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// bridgeOf makes the carrier of a request that came in HTTP/1.1 to endpoints of HTTP/2.
func bridgeOf(h *HTTP, x *relay.Exchange) *bridge {
	q := x.Request()
	m := q.Request
	// An upgrade is between neighbours (RFC 9110 section 7.8); the answer is that of a request without.
	m.Protocol = ""
	if q.Trailers {
		m.Fields = append(slices.Clone(m.Fields), message.Field{Name: "te", Value: "trailers"})
	}
	return &bridge{bridgeClient: &client1{x: x}, http: h, request: &m, ctx: x.Context()}
}

// client1 is a client of HTTP/1.1.
type client1 struct {
	x *relay.Exchange

	mu sync.Mutex // guards all below, and writing to the client until begun
	// told: the client was told to go on with its body. begun: the answer has.
	told, begun bool
	// passed counts the interim responses of the endpoint.
	passed int
}

func (v *client1) read() ([]byte, error) {
	v.goOn()
	return v.x.ReadBody()
}

// goOn tells a client that waits for it to send the body (RFC 9110 section 10.1.1), unless the endpoint has.
func (v *client1) goOn() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.told || v.begun || !v.x.Request().Expect || v.x.BodyComplete() {
		return
	}
	v.told = true
	_ = v.x.WriteHead(&message.Response{Status: http.StatusContinue})
}

func (v *client1) interim(m *message.Response) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if m.Status == http.StatusContinue && v.told {
		return
	}
	v.told = v.told || m.Status == http.StatusContinue
	v.passed++
	_ = v.x.WriteHead(m)
}

func (v *client1) seen() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.passed > 0
}

// start keeps who reads from writing to the client.
func (v *client1) start() {
	v.mu.Lock()
	v.begun = true
	v.mu.Unlock()
}

func (v *client1) begin(m *message.Response, last bool) error {
	v.start()
	if last {
		v.x.CloseAfter()
	}
	return v.x.WriteHead(m)
}

func (v *client1) refuse(a upstream.Answer, last bool) int64 {
	v.start()
	if last {
		v.x.CloseAfter()
	}
	before := v.x.Sent()
	_ = v.x.Respond(a.Status, a.Fields, a.Text)
	return v.x.Sent() - before
}

func (v *client1) stop() {
	if !v.x.BodyComplete() {
		v.x.StopBody()
	}
}

// accept is for nobody: a tunnel is made before there is a bridge.
func (v *client1) accept() (halfCloser, error) {
	return nil, &upstream.Error{Reason: upstream.UpgradeFailed, Err: errors.New("a tunnel over HTTP/2 requests")}
}

// write needs no ctx, whose end the relay knows.
func (v *client1) write(_ context.Context, p []byte) error { return v.x.Write(p) }

func (v *client1) finished() []message.Field             { return v.x.Trailers() }
func (v *client1) finish(trailers []message.Field) error { return v.x.Finish(trailers) }
func (v *client1) describeTo(e *entry)                   { describeExchange(e, v.x) }
func (v *client1) end()                                  {}

// abort does nothing: the relay breaks off what is not complete.
func (v *client1) abort(*upstream.Error) {}
