package proxy

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http2"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// bridge has a goroutine serve the request from here on.
func (s *stream) bridge() http2.Decision {
	x := &s.exchange
	s.bridged = true
	// They are the connection's, which has other requests.
	x.memo = nil
	// The stream may end before the goroutine does.
	asked := *s.request
	asked.Fields = slices.Clone(asked.Fields)
	m := asked
	v := &client2{request: &asked}
	if s.upgrade != "" {
		v.upgrade(&m)
	}
	b := &bridge{bridgeClient: v, http: s.HTTP, request: &m}
	v.stream = http2.NewAnswering(s.conn.ctx, func() {
		s.of.waits.Go(func() { x.serveBridged() })
	})
	b.ctx = v.stream.Context()
	v.reading, v.halt = context.WithCancel(b.ctx)
	if !s.deadline.IsZero() {
		b.bound(s.deadline)
		s.ticket.SetDeadline(time.Time{})
	}
	x.via = b
	return http2.Decision{To: v.stream}
}

// serveBridged is the goroutine of a bridged request: what run is for HTTP/1.1, from where its cluster is known.
func (x *exchange) serveBridged() {
	defer func() {
		v := recover()
		if err, _ := v.(error); v != nil && !errors.Is(err, http.ErrAbortHandler) {
			// It was in the ending of the request.
			_ = x.defect(x.conn.remote, v)
		}
	}()
	defer x.end()
	if err := x.proceed(x.cluster); err != nil {
		x.fail(err)
	}
}

// client2 is a client of HTTP/2, and client2.stream the request that the relay has from it.
type client2 struct {
	request *message.Request
	stream  *http2.Answering
	// reading ends with stop.
	reading context.Context //nolint:containedctx // the body's
	halt    context.CancelFunc
	// interims counts the 1xx that were passed on.
	interims int
	// key is that of a WebSocket's handshake with the endpoint; "" for none.
	key string
}

func (v *client2) read() ([]byte, error)     { return v.stream.ReadBody(v.reading) }
func (v *client2) finished() []message.Field { return v.stream.Trailers() }
func (v *client2) seen() bool                { return v.interims > 0 }
func (v *client2) stop()                     { v.halt() }
func (v *client2) end()                      { v.stream.Close() }
func (v *client2) abort(e *upstream.Error)   { v.stream.Abort(e) }
func (v *client2) describeTo(e *entry)       { describeRequest(e, v.request) }

func (v *client2) interim(m *message.Response) {
	v.interims++
	v.stream.WriteHead(m, false)
}

func (v *client2) begin(m *message.Response, _ bool) error {
	v.stream.WriteHead(m, m.Length == 0 || !m.HasBody(v.request.Method))
	return nil
}

func (v *client2) write(ctx context.Context, p []byte) error {
	_, err := v.stream.WriteWithin(ctx, p)
	return err
}

func (v *client2) finish(trailers []message.Field) error {
	v.stream.Finish(trailers)
	return nil
}

func (v *client2) refuse(a upstream.Answer, _ bool) int64 {
	m := message.Response{Status: a.Status, Fields: a.Fields}
	text := a.Text
	if text != "" {
		m.Fields = append(m.Fields, message.Field{Name: "content-length", Value: strconv.Itoa(len(text))})
	}
	if v.request.Method == http.MethodHead {
		text = ""
	}
	v.stream.Reply(&m, text)
	return int64(len(text))
}

func (v *client2) accept() (halfCloser, error) {
	v.stream.WriteHead(&message.Response{Status: http.StatusOK}, false)
	return &tunnel2{client2: v, body: clientBody{client: v}}, nil
}

// tunnel2 is a CONNECT stream of HTTP/2 seen as a connection (RFC 9113 section 8.5).
type tunnel2 struct {
	*client2
	body clientBody
}

// Read implements io.Reader.
func (t *tunnel2) Read(p []byte) (int, error) { return t.body.Read(p) }

// Write implements io.Writer.
func (t *tunnel2) Write(p []byte) (int, error) { return t.stream.Write(p) }

// CloseWrite implements halfCloser.
func (t *tunnel2) CloseWrite() error { return t.finish(nil) }

// Close ends both directions; what is not finished breaks off with the request.
func (t *tunnel2) Close() error {
	t.stream.Stop()
	return nil
}

// upgrade makes an extended CONNECT (RFC 8441) a request of HTTP/1.1 that asks for the same.
func (v *client2) upgrade(m *message.Request) {
	m.Method, m.Length = http.MethodGet, 0
	if m.Protocol == "websocket" {
		var key [16]byte
		_, _ = rand.Read(key[:])
		v.key = base64.StdEncoding.EncodeToString(key[:])
		m.Fields = append(m.Fields, message.Field{Name: "sec-websocket-key", Value: v.key})
	}
}

// upgraded passes on that the endpoint has changed protocols, and gives the client's side of the tunnel.
func (v *client2) upgraded(m *message.Response) (halfCloser, error) {
	if v.key != "" && m.Get("sec-websocket-accept") != acceptOf(v.key) {
		return nil, &upstream.Error{Reason: upstream.UpgradeFailed, Err: errors.New("the endpoint's Sec-WebSocket-Accept does not fit")}
	}
	out := message.Response{Status: http.StatusOK, Fields: slices.DeleteFunc(slices.Clone(m.Fields), func(f message.Field) bool {
		return f.Name == "sec-websocket-accept"
	})}
	v.stream.WriteHead(&out, false)
	return &tunnel2{client2: v, body: clientBody{client: v}}, nil
}

// acceptOf is what a WebSocket server answers a key with (RFC 6455 section 4.2.2).
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // the protocol's
	return base64.StdEncoding.EncodeToString(sum[:])
}
