package relay_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
)

// TestSlowClientAtTheEnd: a client that takes its time to read the last answer of a connection has all of it, whatever it still sends
// meanwhile: requests that it had sent before it knew, or a body that nobody reads.
func TestSlowClientAtTheEnd(t *testing.T) {
	const size = 256 << 10
	for name, first := range map[string]string{
		"requests behind the last one": get("Connection: close\r\n"),
		"a body that is not read":      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, relay.Config{}, backend(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "262144")
				_, _ = w.Write(make([]byte, size))
			}))
			c := r.dial()
			_ = c.SetReadBuffer(4 << 10)
			c.send(first)
			pace := time.NewTicker(100 * time.Millisecond)
			defer pace.Stop()
			resp, err := http.ReadResponse(c.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			began, n := time.Now(), int64(0)
			for n < size {
				got, err := io.CopyN(io.Discard, resp.Body, 8<<10)
				if n += got; err != nil {
					t.Fatalf("%v after %d bytes and %s", err, n, time.Since(began))
				}
				<-pace.C
				if _, err := io.WriteString(c.TCPConn, get()); err != nil {
					t.Fatalf("%v after %d bytes and %s", err, n, time.Since(began))
				}
			}
		})
	}
}
