package http1

import (
	"testing"

	"pgregory.net/rapid"
)

// TestUnfinished: what is unfinished by the first bytes and those that have come is what Parse says is.
func TestUnfinished(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(rapid.SampledFrom([]string{"GET / HTTP/1.1", "HTTP/1.1 200 OK", "a: b", "\r", "\n", "\r\n", "\n\r", "Host: a"}), 1, 12).Draw(t, "pieces")
		var buf []byte
		for _, p := range pieces {
			buf = append(buf, p...)
		}
		l := Limits{Bytes: rapid.IntRange(20, 100).Draw(t, "limit")}
		had := rapid.IntRange(0, len(buf)).Draw(t, "had")
		for name, parse := range map[string]func([]byte) (int, error){
			"request":  func(b []byte) (int, error) { return new(Request).Parse(b, l) },
			"response": func(b []byte) (int, error) { return new(Response).Parse(b, "GET", l) },
		} {
			open := func(b []byte) bool {
				n, err := parse(b)
				return n == 0 && err == nil
			}
			if !open(buf[:had]) {
				continue
			}
			if got, want := Unfinished(buf, had, l), open(buf); got != want && (got || had >= len(versionOf1)) {
				t.Fatalf("%s %q after %d bytes: %v, and Parse: %v", name, buf, had, got, want)
			}
		}
	})
}
