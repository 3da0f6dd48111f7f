package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// proxyStatus is the value of Proxy-Status (RFC 9209) for an error of ours.
func proxyStatus(e *upstream.Error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "freshmesh; error=%s", e.Reason.ProxyError())
	if e.NextHop.IsValid() {
		fmt.Fprintf(&b, "; next-hop=%s", sfString(e.NextHop.String()))
	}
	if e.Err != nil {
		fmt.Fprintf(&b, "; details=%s", sfString(e.Err.Error()))
	}
	fmt.Fprintf(&b, "; layer=%s; reason=%s", e.Reason.Layer(), e.Reason)
	return b.String()
}

// sfString quotes a string of a structured field (RFC 8941 section 3.3.3), in
// which only printable ASCII may stand.
func sfString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c > 0x7e:
			b.WriteByte('?')
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// grpcMessage percent-encodes a status message ("PROTOCOL-HTTP2" of gRPC, Status-Message).
func grpcMessage(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < 0x20 || c > 0x7e || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// asError makes an *upstream.Error of any error.
func asError(err error) *upstream.Error {
	if e, ok := errors.AsType[*upstream.Error](err); ok {
		return e
	}
	return &upstream.Error{Reason: upstream.ReasonOf(err), Err: err}
}

// refusal is how a client hears of an error of ours.
type refusal struct {
	status int
	fields []message.Field
	// text is the body; "" for none, and no word of its length then.
	text string
}

func refusalOf(e *upstream.Error, grpc bool) refusal {
	r := refusal{status: e.Reason.Status(), fields: []message.Field{{Name: "proxy-status", Value: proxyStatus(e)}}}
	if grpc {
		// Trailers-only: HEADERS with END_STREAM, and status 200 whatever happened.
		r.status = http.StatusOK
		r.fields = append(r.fields,
			message.Field{Name: "content-type", Value: "application/grpc"},
			message.Field{Name: "grpc-status", Value: strconv.Itoa(int(e.Reason.GRPC()))},
			message.Field{Name: "grpc-message", Value: grpcMessage("freshmesh: " + e.Error())})
		return r
	}
	r.text = "freshmesh: " + e.Error() + "\n"
	r.fields = append(r.fields, message.Field{Name: "content-type", Value: "text/plain; charset=utf-8"})
	return r
}
