package upstream

import (
	"fmt"
	"strings"
)

// ProxyStatus is the value of Proxy-Status (RFC 9209).
func (e *Error) ProxyStatus() string {
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

// GRPCMessage is the value of grpc-message, percent-encoded ("PROTOCOL-HTTP2" of gRPC, Status-Message).
func (e *Error) GRPCMessage() string { return percentEncoded("freshmesh: " + e.Error()) }

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

// percentEncoded is the encoding of grpc-message.
func percentEncoded(s string) string {
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
