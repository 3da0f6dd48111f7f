package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// An answer that comes before the client has sent all of its body leaves a
// connection that works, or one that was said to end: never one that breaks
// under the next request.
func TestAnswerBeforeTheEndOfTheBody(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint func(t *testing.T) string
		status   int
	}{
		"the upstream's own": {func(t *testing.T) string {
			t.Helper()
			return acceptor(t, func(c net.Conn) {
				r := bufio.NewReader(c)
				for {
					q, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly")
					if _, err := io.Copy(io.Discard, q.Body); err != nil {
						return
					}
				}
			})
		}, 200},
		"ours": {func(t *testing.T) string { t.Helper(); return "" }, 503},
	} {
		t.Run(name, func(t *testing.T) {
			r := fastRig(t)
			if b := c.endpoint(t); b != "" {
				r.put(b)
			} else {
				r.put()
			}
			for range 20 {
				conn := r.dial(r.addr)
				reader := bufio.NewReader(conn)
				ask := func(text string) *http.Response {
					_, _ = fmt.Fprint(conn, text)
					resp, err := http.ReadResponse(reader, nil)
					if err != nil {
						t.Fatalf("%q: %v", text, err)
					}
					defer func() { _ = resp.Body.Close() }()
					if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != c.status {
						t.Fatalf("%q: %s %v", text, resp.Status, err)
					}
					return resp
				}
				resp := ask("POST / HTTP/1.1\r\nHost: " + echo + "\r\nContent-Length: 10\r\n\r\n12345")
				_, _ = io.WriteString(conn, "67890")
				if !resp.Close {
					ask("GET / HTTP/1.1\r\nHost: " + echo + "\r\n\r\n")
				}
				_ = conn.Close()
			}
		})
	}
}
