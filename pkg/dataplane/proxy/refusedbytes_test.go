package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/freshmesh/freshmesh/internal/testaddr"
)

// TestAccessLogCountsOurOwnAnswers: the body of an error of ours is sent as any other, so the log counts it,
// whatever is spoken on both sides. HEAD and gRPC have none.
func TestAccessLogCountsOurOwnAnswers(t *testing.T) {
	for _, asked2 := range []bool{false, true} {
		for _, sent2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("HTTP/2 %v to HTTP/2 %v", asked2, sent2), func(t *testing.T) {
				r := newRig(t)
				var out logBuffer
				r.logTo(&out)
				r.put2(sent2, nil, testaddr.Refused(t))
				tr := transport(asked2)
				defer tr.CloseIdleConnections()
				n := 0
				ask := func(method, host, kind string) {
					t.Helper()
					q, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.addr+"/s/m", nil)
					if err != nil {
						t.Fatal(err)
					}
					q.Host = host
					q.Header.Set("Content-Type", kind)
					resp, err := tr.RoundTrip(q)
					if err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if err != nil || resp.Header.Get("Proxy-Status") == "" || (len(body) == 0) != (method == http.MethodHead || kind == "application/grpc") {
						t.Errorf("%s %s: %s %q %v", method, host, resp.Status, body, err)
					}
					n++
					if got := out.next(t, n); got.BytesSent != int64(len(body)) || got.Reason == "none" {
						t.Errorf("%s %s: %d bytes came, and logged is %+v", method, host, len(body), got)
					}
				}
				for _, host := range []string{echo, "nobody:8080"} {
					ask(http.MethodGet, host, "text/plain")
					ask(http.MethodHead, host, "text/plain")
					ask(http.MethodPost, host, "application/grpc")
				}
			})
		}
	}
}
