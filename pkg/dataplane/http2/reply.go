package http2

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// ErrorReply is the answer for an error of ours: for gRPC trailers only, with
// status 200 whatever happened, for others a line of text; Proxy-Status (RFC 9209) in both.
func ErrorReply(e *upstream.Error, grpc bool) *Reply {
	if grpc {
		return &Reply{Status: http.StatusOK, Fields: append([]message.Field{
			{Name: "content-type", Value: "application/grpc"},
		}, errorTrailers(e)...)}
	}
	text := "freshmesh: " + e.Error() + "\n"
	return &Reply{Status: e.Reason.Status(), Body: text, Fields: []message.Field{
		{Name: "content-type", Value: "text/plain; charset=utf-8"},
		{Name: "content-length", Value: strconv.Itoa(len(text))},
		{Name: "proxy-status", Value: proxyStatus(e)},
	}}
}

// errorTrailers are what ends a gRPC call with an error of ours.
func errorTrailers(e *upstream.Error) []message.Field {
	return []message.Field{
		{Name: "grpc-status", Value: strconv.Itoa(int(e.Reason.GRPC()))},
		{Name: "grpc-message", Value: escaped("freshmesh: " + e.Error())},
		{Name: "proxy-status", Value: proxyStatus(e)},
	}
}

// proxyStatus is the value of Proxy-Status (RFC 9209) for an error of ours.
func proxyStatus(e *upstream.Error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "freshmesh; error=%s", e.Reason.ProxyError())
	if e.NextHop.IsValid() {
		fmt.Fprintf(&b, "; next-hop=%s", quoted(e.NextHop.String()))
	}
	if e.Err != nil {
		fmt.Fprintf(&b, "; details=%s", quoted(e.Err.Error()))
	}
	fmt.Fprintf(&b, "; layer=%s; reason=%s", e.Reason.Layer(), e.Reason)
	return b.String()
}

// quoted is a string of a structured field (RFC 8941 section 3.3.3).
func quoted(s string) string {
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

// escaped is a gRPC status message, percent-encoded.
func escaped(s string) string {
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
