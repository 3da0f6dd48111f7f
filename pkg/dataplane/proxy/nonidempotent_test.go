package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
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
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	// On one connection of the client's the second request comes when the first one's connection is free again.
	br := bufio.NewReader(c)
	for _, q := range []struct {
		text   string
		status int
	}{
		{"GET / HTTP/1.1\r\nHost: " + echo + "\r\n\r\n", http.StatusOK},
		{"POST / HTTP/1.1\r\nHost: " + echo + "\r\nContent-Length: 3\r\n\r\npay", http.StatusBadGateway},
	} {
		if _, err := io.WriteString(c, q.text); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != q.status {
			t.Errorf("status %d, want %d, for %q", resp.StatusCode, q.status, q.text)
		}
	}
	if n := worked.Load(); n != 1 {
		t.Errorf("the endpoint worked on the request %d times", n)
	}
}
