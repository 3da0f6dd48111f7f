package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// dyingServer answers the first request on each connection, and breaks off
// after it has read the second one: its process died at its work.
func dyingServer(t *testing.T) (addr string, worked *atomic.Int64) {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	worked = &atomic.Int64{}
	var wg sync.WaitGroup
	serve := func(c net.Conn) {
		defer context.AfterFunc(t.Context(), func() { _ = c.Close() })()
		defer func() { _ = c.Close() }()
		br := bufio.NewReader(c)
		for i := range 2 {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if req.Method == http.MethodPost {
				worked.Add(1)
			}
			if i == 0 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String(), worked
}

// TestPostIsNotSentTwice: a request that is not idempotent was written whole to
// a connection that had been used before, and may have been worked on.
func TestPostIsNotSentTwice(t *testing.T) {
	r := newRig(t)
	addr, worked := dyingServer(t)
	r.put(addr)
	if status, _, body := r.get(echo); status != 200 {
		t.Fatal(status, body)
	}
	resp, err := r.do(http.MethodPost, echo, strings.NewReader("pay"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if n := worked.Load(); n != 1 {
		t.Errorf("the endpoint worked on the request %d times, status %d", n, resp.StatusCode)
	}
}
