package proxy

import (
	"net/http"
	"time"
)

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
