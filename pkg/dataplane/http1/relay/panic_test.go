package relay_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// A handler that panics costs its connection, and what it held upstream; http.ErrAbortHandler does so silently.
func TestPanic(t *testing.T) {
	for name, c := range map[string]struct {
		value any
		begun bool
	}{
		"before an answer":    {"boom", false},
		"within an answer":    {"boom", true},
		"on purpose":          {http.ErrAbortHandler, false},
		"on purpose, within":  {http.ErrAbortHandler, true},
		"after an upload":     {"upload", false},
		"an upload, answered": {"upload", true},
	} {
		t.Run(name, func(t *testing.T) {
			_, silent := c.value.(error)
			heard := make(chan any, 10)
			var r *rig
			ready := make(chan struct{})
			r = start(t, relay.Config{
				Panicked: func(_ net.Addr, v any, stack []byte) {
					if !strings.Contains(string(stack), "panic_test.go") {
						t.Errorf("not the stack: %s", stack)
					}
					heard <- v
				},
				Handler: handler(func(x *relay.Exchange) {
					<-ready
					if x.Request().Path == "/ok" {
						_ = x.Respond(200, nil, "ok")
						return
					}
					conn, err := r.pools[0].Acquire(x.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if c.value == "upload" {
						// The endpoint answers before it has read the body, which goes on and on.
						if _, err := x.Send(conn, 0); err != nil {
							t.Error(err)
						}
						if !c.begun {
							panic(c.value)
						}
					}
					if c.begun {
						_ = x.WriteHead(&message.Response{Status: 200, Length: -1})
						_ = x.Write([]byte("half"))
					}
					panic(c.value)
				}),
			}, raw(t, func(nc *net.TCPConn, br *bufio.Reader) {
				if _, err := http.ReadRequest(br); err == nil {
					_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
				}
				_, _ = io.Copy(io.Discard, br)
			}))
			close(ready)
			client := r.dial()
			if c.value == "upload" {
				client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nhello")
			} else {
				client.send(get())
			}
			got := client.rest()
			if c.begun != strings.Contains(got, "half") || strings.HasSuffix(got, "0\r\n\r\n") {
				t.Errorf("the client got %q", got)
			}
			if silent {
				if len(heard) > 0 {
					t.Errorf("heard of %v", <-heard)
				}
			} else if v := <-heard; v != c.value {
				t.Errorf("heard of %v", v)
			}
			if c.value == "upload" {
				testwait.Until(t, "its connection upstream is closed", func() bool { return r.pools[0].Open() == 0 })
			}
			next := r.dial()
			next.send("GET /ok HTTP/1.1\r\nHost: a\r\n\r\n")
			if resp, body := next.response("GET"); resp.StatusCode != 200 || body != "ok" {
				t.Errorf("the next one got %d %q", resp.StatusCode, body)
			}
		})
	}
}
