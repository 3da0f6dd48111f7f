package proxy_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestNoInterimForHTTP10: a client of HTTP/1.0 would take it for the answer.
func TestNoInterimForHTTP10(t *testing.T) {
	r := newRig(t)
	b := newBackend(t, "b", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</x>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusOK)
	})
	r.put(b.addr)
	got := exchangeRaw(t, r, "GET / HTTP/1.0\r\nHost: "+echo+"\r\n\r\n", false)
	if strings.Contains(got, "103") || !strings.Contains(got, " 200 OK") {
		t.Errorf("%q", got)
	}
	if got := exchangeRaw(t, r, "GET / HTTP/1.1\r\nHost: "+echo+"\r\nConnection: close\r\n\r\n", false); !strings.Contains(got, " 103 ") {
		t.Errorf("HTTP/1.1: %q", got)
	}
}
