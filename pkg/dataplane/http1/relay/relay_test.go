package relay_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
)

// echo answers with what it was sent.
func echo(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).EnableFullDuplex()
	w.Header().Set("X-Method", r.Method)
	w.Header().Set("X-Host", r.Host)
	if r.ContentLength >= 0 {
		w.Header().Set("Content-Length", fmt.Sprint(r.ContentLength))
	}
	if r.Body != nil {
		_, _ = io.Copy(w, r.Body)
	}
}

func TestBodies(t *testing.T) {
	r := start(t, relay.Config{}, backend(t, echo), backend(t, echo))
	c := client(t)
	for _, size := range []int{0, 1, 1000, 16 << 10, 20 << 10, 64 << 10, 65 << 10, 1 << 20, 20 << 20} {
		for _, chunked := range []bool{false, true} {
			body := bytes.Repeat([]byte("0123456789abcde\n"), size/16+1)[:size]
			var in io.Reader = bytes.NewReader(body)
			if chunked {
				in = io.MultiReader(in)
			}
			resp, err := c.Post("http://"+r.address+"/p?q", "text/plain", in)
			if err != nil {
				t.Fatalf("%d bytes, chunked %v: %v", size, chunked, err)
			}
			got, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Equal(got, body) {
				t.Fatalf("%d bytes, chunked %v: %d bytes came back, %v", size, chunked, len(got), err)
			}
		}
	}
}

// What a listener has read to find out the protocol is the beginning of the first request.
func TestFirstBytes(t *testing.T) {
	text := "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n" + strings.Repeat("x", 40000) + "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, n := range []int{1, 24, 1000, 20000, len(text)} {
		var sizes []int
		c := &script{in: bytes.NewReader([]byte(text[n:])), max: 1 << 20}
		relay.NewServer(t.Context(), relay.Config{Handler: handler(func(x *relay.Exchange) {
			size := 0
			for part, err := x.ReadBody(); len(part) > 0 || err != nil; part, err = x.ReadBody() {
				if size += len(part); err != nil {
					t.Fatal(err)
				}
			}
			sizes = append(sizes, size)
			_ = x.Respond(200, nil, "")
		})}, c, []byte(text[:n])).Serve()
		if fmt.Sprint(sizes) != "[40000 0]" {
			t.Errorf("with %d bytes first: bodies of %v bytes", n, sizes)
		}
	}
}

func TestManyClients(t *testing.T) {
	r := start(t, relay.Config{}, backend(t, echo), backend(t, echo), backend(t, echo))
	c := client(t)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for j := range 25 {
				body := strings.Repeat(fmt.Sprintf("%d-%d ", i, j), 1+j*j)
				resp, err := c.Post("http://"+r.address+"/", "text/plain", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				if string(got) != body {
					t.Errorf("%d bytes, want %d: %v", len(got), len(body), err)
				}
			}
		})
	}
	wg.Wait()
}

// The trailers of one answer are not those of the next one on the connection, whatever its framing is.
func TestTrailersAreOfOneAnswer(t *testing.T) {
	answers := []string{
		"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nGrpc-Status: 14\r\n\r\n",
		"Content-Length: 0\r\n\r\n", "Content-Length: 1\r\n\r\nx", "\r\nx",
	}
	var r *rig
	// seen is how many trailers there were before and after an answer was relayed.
	seen := make(chan [2]int, 1)
	ready := make(chan struct{})
	r = start(t, relay.Config{Handler: handler(func(x *relay.Exchange) {
		<-ready
		err := r.send(x)
		before := len(x.ResponseTrailers())
		if err == nil {
			err = x.Relay(nil)
		}
		if err != nil {
			t.Error(err)
		}
		seen <- [2]int{before, len(x.ResponseTrailers())}
	})}, raw(t, func(c *net.TCPConn, br *bufio.Reader) {
		for {
			q, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			which, _ := strconv.Atoi(q.URL.Path[1:])
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+answers[which])
			if which == 3 {
				return
			}
		}
	}))
	close(ready)
	c := r.dial()
	for which := range answers {
		for _, n := range []int{0, which} {
			c.send(fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", n))
			resp, _ := c.response("GET")
			want := [2]int{}
			if n == 0 {
				want[1] = 1
			}
			if got := <-seen; got != want || len(resp.Trailer) != want[1] {
				t.Errorf("answer %d after 0: %d trailers before and after it was relayed, and the client got %v", n, got, resp.Trailer)
			}
		}
	}
}
