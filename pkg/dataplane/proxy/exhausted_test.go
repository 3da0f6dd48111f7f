package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/internal/testaddr"
)

// TestNowhereElse: an answer is given up for another endpoint, which cannot be reached, and there is no third one: the
// client is told of the endpoint that could not be reached, not that a protocol was broken.
func TestNowhereElse(t *testing.T) {
	for _, near := range []bool{false, true} {
		for _, far := range []bool{false, true} {
			t.Run(fmt.Sprintf("client over HTTP/2 %t, endpoint %t", near, far), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				bad, calls := counting(t, "bad", 503)
				dead := testaddr.Refused(t)
				tr := transport(near)
				defer tr.CloseIdleConnections()
				for met := false; !met; {
					// An endpoint that comes anew has no bad name yet.
					r.put2(far, nil, bad.addr)
					r.put2(far, retryOn(2, "5xx"), bad.addr, dead)
					before := calls.Load()
					q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.addr+"/", nil)
					if err != nil {
						t.Fatal(err)
					}
					q.Host = echo
					resp, err := tr.RoundTrip(q)
					if err != nil {
						t.Fatal(err)
					}
					b, _ := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if string(b) == "bad" {
						continue // the dead one came first, and is out
					}
					met = calls.Load() > before
					if got := resp.Header.Get("Proxy-Status"); !strings.Contains(got, "connect_refused") || !strings.Contains(string(b), dead) {
						t.Fatalf("%d %q %s", resp.StatusCode, got, b)
					}
				}
			})
		}
	}
}
