package proxy

import (
	"maps"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// hopByHop are the fields that belong to one connection (RFC 9110 section
// 7.6.1), beside those that Connection names. Proxy-Authenticate and
// Proxy-Authorization are between a client and its proxy, which is us.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
}

// endToEnd gives a copy of h without its hop-by-hop fields.
func endToEnd(h http.Header) http.Header {
	out := make(http.Header, len(h))
	maps.Copy(out, h)
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = textproto.TrimString(name); name != "" {
				delete(out, textproto.CanonicalMIMEHeaderKey(name))
			}
		}
	}
	for _, name := range hopByHop {
		delete(out, name)
	}
	return out
}

// upgradeOf is the protocol that an HTTP/1.1 request asks to change to, or "". Upgrades
// to HTTP/2 are not relayed: they are between two neighbours.
func upgradeOf(protocol string) string {
	if len(protocol) >= 2 && strings.EqualFold(protocol[:2], "h2") {
		return ""
	}
	return protocol
}

// requestHeader is what goes upstream.
func requestHeader(r *http.Request) http.Header {
	out := endToEnd(r.Header)
	// gRPC requires this one, and it holds on our side too: trailers are relayed.
	if httpguts.HeaderValuesContainsToken(r.Header["Te"], "trailers") {
		out["Te"] = []string{"trailers"}
	}
	if _, ok := out["User-Agent"]; !ok {
		// net/http would make one up.
		out["User-Agent"] = []string{""}
	}
	return out
}

func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// idempotent: RFC 9110 section 9.2.2.
func idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// grpcTimeout reads the value of the field grpc-timeout ("PROTOCOL-HTTP2" of gRPC: at most 8
// digits and a unit); false when there is none or it is malformed.
func grpcTimeout(text string) (time.Duration, bool) {
	if len(text) < 2 || len(text) > 9 {
		return 0, false
	}
	units := map[byte]time.Duration{
		'H': time.Hour, 'M': time.Minute, 'S': time.Second,
		'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
	}
	unit, ok := units[text[len(text)-1]]
	if !ok {
		return 0, false
	}
	var n time.Duration
	for _, c := range []byte(text[:len(text)-1]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + time.Duration(c-'0')
	}
	const longest = 1000 * time.Hour
	if n > longest/unit {
		return longest, true
	}
	return n * unit, true
}
