package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/proxy"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// TestMalformedIsTold: what is no request is told as every error of ours, counted, and the end of its connection.
func TestMalformedIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		status int
		reason upstream.Reason
	}{
		"two spaces":     {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", http.StatusBadRequest, upstream.Malformed},
		"two lengths":    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", http.StatusBadRequest, upstream.Malformed},
		"another coding": {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nxx", http.StatusNotImplemented, upstream.Malformed},
		"too long":       {"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("y", 70<<10) + "\r\n\r\n", http.StatusRequestHeaderFieldsTooLarge, upstream.HeaderLimit},
		"too slow":       {"GET / HTTP/1.1\r\n", http.StatusRequestTimeout, upstream.HeaderTimeout},
		"no byte":        {"", 0, upstream.HeaderTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.limit(proxy.LimitsConfig{HeaderTime: 300 * time.Millisecond, HeaderBytes: 64 << 10})
			nc, err := net.Dial("tcp", r.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = nc.Close() }()
			_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
			_, _ = io.WriteString(nc, c.text)
			br := bufio.NewReader(nc)
			if c.status > 0 {
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if resp.StatusCode != c.status || !resp.Close || err != nil {
					t.Errorf("status %d, close %v, %v", resp.StatusCode, resp.Close, err)
				}
				if want := "freshmesh: client: " + string(c.reason) + ": "; !strings.HasPrefix(string(body), want) {
					t.Errorf("%q does not begin with %q", body, want)
				}
				if got := resp.Header.Get("Proxy-Status"); !strings.Contains(got, "layer=client; reason="+string(c.reason)) {
					t.Errorf("Proxy-Status %q", got)
				}
			}
			if rest, err := io.ReadAll(br); err != nil || len(rest) > 0 {
				t.Errorf("then %q, %v", rest, err)
			}
			r.counted(c.reason, 1)
			limits := 0.0
			if c.reason != upstream.Malformed {
				limits = 1
			}
			if n := r.counter("freshmesh_limits_reached_total", string(c.reason)); n != limits {
				t.Errorf("%v limits counted as %s", n, c.reason)
			}
		})
	}
}
