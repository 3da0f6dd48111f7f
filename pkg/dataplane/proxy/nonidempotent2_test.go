package proxy_test

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// TestCallIsNotSentTwice: over HTTP/2 a POST goes to another endpoint only where this one has said that it did not
// work on it, by REFUSED_STREAM or a GOAWAY that names an earlier stream (RFC 9113 sections 6.8 and 8.7). Of one
// that was written to a connection which then broke nobody knows.
func TestCallIsNotSentTwice(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(f *http2.Framer, id uint32, conn net.Conn)
		status int
	}{
		"the connection breaks": {func(_ *http2.Framer, _ uint32, conn net.Conn) { _ = conn.Close() }, http.StatusBadGateway},
		"the stream is reset": {func(f *http2.Framer, id uint32, _ net.Conn) {
			_ = f.WriteRSTStream(id, http2.ErrCodeInternal)
		}, http.StatusBadGateway},
		"GOAWAY that has seen it": {func(f *http2.Framer, id uint32, conn net.Conn) {
			_ = f.WriteGoAway(id, http2.ErrCodeNo, nil)
			_ = conn.Close()
		}, http.StatusBadGateway},
		"REFUSED_STREAM": {func(f *http2.Framer, id uint32, _ net.Conn) {
			_ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream)
		}, http.StatusOK},
		"GOAWAY that has not": {func(f *http2.Framer, _ uint32, conn net.Conn) {
			_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
			_ = conn.Close()
		}, http.StatusOK},
	} {
		for _, grpcClient := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", HTTP/2 client", false: ", HTTP/1.1 client"}[grpcClient], func(t *testing.T) {
				r := newRig(t)
				var worked atomic.Int64
				good := newBackend(t, "a", func(http.ResponseWriter, *http.Request) { worked.Add(1) })
				asked := make(chan struct{}, 100)
				bad := frameServer(t, nil, func(f *http2.Framer, h *http2.HeadersFrame, conn net.Conn) {
					asked <- struct{}{}
					c.end(f, h.StreamID, conn)
				})
				tr := transport(grpcClient)
				defer tr.CloseIdleConnections()
				for {
					// An endpoint that comes anew has no bad name yet.
					r.putCluster(&discovery.Cluster{HTTP2: true}, good.addr)
					r.putCluster(&discovery.Cluster{HTTP2: true}, bad, good.addr)
					worked.Store(0)
					q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+"/", strings.NewReader("pay"))
					if err != nil {
						t.Fatal(err)
					}
					q.Host = echo
					resp, err := tr.RoundTrip(q)
					if err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close()
					if len(asked) == 0 {
						continue
					}
					want := int64(0)
					if c.status == http.StatusOK {
						want = 1
					}
					if resp.StatusCode != c.status || worked.Load() != want {
						t.Errorf("status %d, %s; the other one worked on it %d times", resp.StatusCode, resp.Header.Get("Proxy-Status"), worked.Load())
					}
					return
				}
			})
		}
	}
}
