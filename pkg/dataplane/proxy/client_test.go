package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// exchangeRaw writes request to the proxy, ends the connection's writing side
// when the client is to leave, and gives all that comes back.
func exchangeRaw(t *testing.T, r *rig, request string, leave bool) string {
	t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	if leave {
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("%v after %q", err, answer)
	}
	return string(answer)
}

// A body that breaks off is the client's doing: it is not sent again, not even
// for an idempotent method, and no endpoint is blamed for it.
func TestBrokenBodyIsTheClients(t *testing.T) {
	for _, tt := range []struct {
		name, framing, body, reason string
		leave                       bool
	}{
		{"malformed chunk", "Transfer-Encoding: chunked", "3\r\nabcXX0\r\n\r\n", "bad_request_body", false},
		{"client leaves", "Content-Length: 100", "half", "client_gone", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			var seen atomic.Int64
			a := newBackend(t, "a", func(_ http.ResponseWriter, q *http.Request) {
				seen.Add(1)
				_, _ = io.Copy(io.Discard, q.Body)
				panic(http.ErrAbortHandler)
			})
			r.put(a.addr)
			got := exchangeRaw(t, r, fmt.Sprintf("PUT / HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n%s", echo, tt.framing, tt.body), tt.leave)
			if !strings.Contains(got, "reason="+tt.reason) || strings.Contains(got, "reset_before_headers") {
				t.Errorf("answer %q", got)
			}
			if n := seen.Load(); n > 1 {
				t.Errorf("sent %d times", n)
			}
			r.disc.mu.Lock()
			defer r.disc.mu.Unlock()
			for key, l := range r.disc.load {
				if l.Failed > 0 {
					t.Errorf("%v is blamed: %+v", key, l)
				}
			}
		})
	}
}

// What an upstream does not say of its body, the proxy does not make up.
func TestNoContentTypeIsGuessed(t *testing.T) {
	r := newRig(t)
	a := newBackend(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, "<html>")
	})
	r.put(a.addr)
	resp, err := r.do(http.MethodGet, echo, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got, ok := resp.Header["Content-Type"]; ok {
		t.Errorf("Content-Type %q", got)
	}
}
