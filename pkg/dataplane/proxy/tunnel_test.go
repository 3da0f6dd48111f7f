package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxy"
)

// lineServer greets first, and answers the whole of what it has read when its
// client has closed its half.
func lineServer(t *testing.T, name string) (addr string, stop func()) {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				fmt.Fprintf(c, "%s\n", name)
				b, err := io.ReadAll(c)
				if err == nil {
					fmt.Fprintf(c, "read %d", len(b))
				}
			})
		}
	})
	var once sync.Once
	stop = func() { once.Do(func() { _ = l.Close() }) }
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
	return l.Addr().String(), stop
}

// converse greets, sends n bytes, closes its half and reads on.
func converse(t *testing.T, c *net.TCPConn, br *bufio.Reader, n int) (greeting, answer string) {
	t.Helper()
	greeting, err := br.ReadString('\n')
	if err != nil {
		t.Fatalf("no greeting: %v", err)
	}
	if _, err := c.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(br)
	if err != nil {
		t.Fatal(err)
	}
	return greeting, string(rest)
}

func TestTCPHalfClose(t *testing.T) {
	r := newRig(t)
	addr, _ := lineServer(t, "a")
	r.put(addr)
	c := r.dial(r.serveTCP(echo))
	if g, a := converse(t, c, bufio.NewReader(c), 1<<20); g != "a\n" || a != "read 1048576" {
		t.Errorf("%q %q", g, a)
	}
}

func TestTCPGoesElsewhere(t *testing.T) {
	r := newRig(t)
	addr, _ := lineServer(t, "a")
	r.put(addr, testaddr.Refused(t))
	front := r.serveTCP(echo)
	for range 10 {
		c := r.dial(front)
		if g, _ := converse(t, c, bufio.NewReader(c), 1); g != "a\n" {
			t.Errorf("%q", g)
		}
	}
	if st := r.set.Status()[0]; !st.Endpoints[1].Ejected {
		t.Errorf("dead endpoint: %+v", st.Endpoints[1])
	}
}

func TestTCPRemovedEndpointClosesAfterDrain(t *testing.T) {
	r := newRig(t)
	a, _ := lineServer(t, "a")
	b, _ := lineServer(t, "b")
	r.put(a)
	front := r.serveTCP(echo)
	c := r.dial(front)
	br := bufio.NewReader(c)
	if g, err := br.ReadString('\n'); g != "a\n" {
		t.Fatal(g, err)
	}
	began := time.Now()
	r.put(b)
	if _, err := br.ReadByte(); err == nil {
		t.Error("connection goes on")
	}
	if took := time.Since(began); took < 1900*time.Millisecond || took > 5*time.Second {
		t.Errorf("closed after %s, drain time is 2 s", took)
	}
}

func TestTCPWithoutEndpointIsReset(t *testing.T) {
	r := newRig(t)
	r.put()
	c := r.dial(r.serveTCP(echo))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("err %v, want a reset", err)
	}
}

func TestConnect(t *testing.T) {
	r := newRig(t)
	addr, _ := lineServer(t, "a")
	r.put(addr)
	c := r.dial(r.addr)
	fmt.Fprint(c, "CONNECT echo:8080 HTTP/1.1\r\nHost: echo:8080\r\n\r\n")
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	if g, a := converse(t, c, br, 1000); g != "a\n" || a != "read 1000" {
		t.Errorf("%q %q", g, a)
	}
	c = r.dial(r.addr)
	fmt.Fprint(c, "CONNECT nobody:8080 HTTP/1.1\r\nHost: nobody:8080\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 404 {
		t.Error(resp, err)
	}
}

func TestConnectOverHTTP2(t *testing.T) {
	r := newRig(t)
	addr, _ := lineServer(t, "a")
	r.put(addr)
	pr, pw := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodConnect, "http://"+r.addr, pr)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "echo:8080"
	tr := transport(true)
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = pw.Write(make([]byte, 10))
	_ = pw.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "a\nread 10" {
		t.Errorf("%q %v", b, err)
	}
}

// A client that waits for the server's end must be told of it, though its own half is open.
func TestConnectOverHTTP2ServerEnds(t *testing.T) {
	r := newRig(t)
	r.put(hungUp(t, "bye"))
	pr, pw := io.Pipe()
	defer func() { _ = pw.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodConnect, "http://"+r.addr, pr)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "echo:8080"
	tr := transport(true)
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.WriteString(pw, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "bye" {
		t.Errorf("%q %v", b, err)
	}
}

func TestBoundListenerIgnoresAuthority(t *testing.T) {
	r := newRig(t)
	r.put(newBackend(t, "a", func(w http.ResponseWriter, q *http.Request) { fmt.Fprint(w, q.Host) }).addr)
	r.addr = r.serveHTTP(&proxy.HTTP{Config: r.cfg, Bound: echo})
	if status, _, body := r.get("www.example.com"); status != 200 || body != "www.example.com" {
		t.Errorf("%d %q", status, body)
	}
}

// An upstream that ends first ends the tunnel, though the client says nothing.
func TestConnectOverHTTP2UpstreamEndsFirst(t *testing.T) {
	r := newRig(t)
	l := listen(t, "127.0.0.1:0")
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprint(c, "bye")
		_ = c.Close()
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	r.put(l.Addr().String())
	pr, pw := io.Pipe()
	defer func() { _ = pw.Close() }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodConnect, "http://"+r.addr, pr)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "echo:8080"
	tr := transport(true)
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "bye" {
		t.Errorf("%q %v", b, err)
	}
}
