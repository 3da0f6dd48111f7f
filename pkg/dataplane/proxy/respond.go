package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

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

// respond tells the client of an error of ours, when nothing else has been
// sent yet, and gives the HTTP status that counts.
func respond(w http.ResponseWriter, r *http.Request, e *upstream.Error) int {
	h := w.Header()
	h.Set("Proxy-Status", proxyStatus(e))
	if isGRPC(r.Header) {
		// Trailers-only: HEADERS with END_STREAM, and status 200 whatever happened.
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", strconv.Itoa(int(e.Reason.GRPC())))
		h.Set("Grpc-Message", grpcMessage("freshmesh: "+e.Error()))
		w.WriteHeader(http.StatusOK)
		return e.Reason.Status()
	}
	text := "freshmesh: " + e.Error() + "\n"
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(e.Reason.Status())
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, text)
	}
	return e.Reason.Status()
}
