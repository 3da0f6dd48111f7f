package relay_test

import (
	"bufio"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
)

// A request that is relayed in the ordinary way leaves no garbage, whether it has a body or not, and whatever coding the answer is in.
func TestNoAllocations(t *testing.T) {
	for name, c := range map[string]struct{ request, answer string }{
		"get":     {get("User-Agent: x\r\nConnection: keep-alive\r\n"), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: x\r\n\r\nhello"},
		"post":    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"},
		"chunked": {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var r *rig
			ready := make(chan struct{})
			answer := []byte(c.answer)
			r = start(t, relay.Config{Handler: handler(func(x *relay.Exchange) {
				<-ready
				x.SetDeadline(time.Now().Add(time.Minute))
				conn, err := r.pools[0].Acquire(x.Context())
				if err == nil {
					if _, err = x.Send(conn, time.Second); err == nil {
						err = x.Relay(nil)
					}
				}
				if err != nil {
					t.Error(err)
				}
			})}, raw(t, func(conn *net.TCPConn, r *bufio.Reader) {
				// No parser here either, so that all that is counted is the relay's.
				buf := make([]byte, 4096)
				for {
					if _, err := r.Read(buf); err != nil {
						return
					}
					if _, err := conn.Write(answer); err != nil {
						return
					}
				}
			}))
			close(ready)
			conn := r.dial()
			buf, request := make([]byte, 4096), []byte(c.request)
			once := func() {
				if _, err := conn.Write(request); err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Read(buf); err != nil {
					t.Fatal(err)
				}
			}
			for range 100 {
				once()
			}
			const n = 2000
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range n {
				once()
			}
			runtime.ReadMemStats(&after)
			if per := float64(after.Mallocs-before.Mallocs) / n; per > 0.2 && !raced {
				t.Errorf("%.2f allocations a request", per)
			}
		})
	}
}
