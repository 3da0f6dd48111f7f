package relay_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
)

// A request that can be read in two ways is refused, the connection is closed, and what is behind it is never a request.
func TestSmuggling(t *testing.T) {
	var reached atomic.Int64
	r := start(t, relay.Config{}, backend(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	const post = "POST / HTTP/1.1\r\nHost: a\r\n"
	const hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
	for name, text := range map[string]string{
		"CL.TE":                        post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"TE.CL":                        post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\n" + hidden + "0\r\n\r\n",
		"TE.TE":                        post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n" + hidden,
		"CL.CL":                        post + "Content-Length: 0\r\nContent-Length: 33\r\n\r\n" + hidden,
		"signed CL":                    post + "Content-Length: +0\r\n\r\n" + hidden,
		"CL with a list":               post + "Content-Length: 0,33\r\n\r\n" + hidden,
		"TE with a vertical tab":       post + "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + hidden,
		"TE behind a space":            post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden,
		"TE on a folded line":          post + "X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"TE behind a bare LF":          post + "X: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"TE behind a NUL":              post + "Transfer-Encoding: chunked\x00\r\n\r\n0\r\n\r\n" + hidden,
		"head that ends in bare LF":    "GET / HTTP/1.1\r\nHost: a\n\n" + hidden,
		"conflicting Hosts":            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + hidden,
		"absolute form, other Host":    "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n" + hidden,
		"TE in HTTP/1.0":               "POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"request line with a fragment": "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n" + hidden,
	} {
		t.Run(name, func(t *testing.T) {
			c := r.dial()
			c.send(text)
			resp, body := c.response("POST")
			if resp.StatusCode < 400 || !resp.Close || !strings.HasPrefix(body, "freshmesh: client: ") {
				t.Errorf("status %d, close %v: %q", resp.StatusCode, resp.Close, body)
			}
			if rest := c.rest(); rest != "" {
				t.Errorf("after it came %q", rest)
			}
		})
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests reached the endpoint", n)
	}
}

// Chunked coding that breaks off or breaks its rules: the endpoint never sees an end of the body.
func TestBrokenChunks(t *testing.T) {
	var whole atomic.Int64
	b := backend(t, func(_ http.ResponseWriter, q *http.Request) {
		if _, err := io.ReadAll(q.Body); err == nil {
			whole.Add(1)
		}
	})
	for name, chunks := range map[string]string{
		"bare LF":         "5\nhello\r\n0\r\n\r\n",
		"signed size":     "+5\r\nhello\r\n0\r\n\r\n",
		"space":           "5 \r\nhello\r\n0\r\n\r\n",
		"odd extension":   "5;\x00\r\nhello\r\n0\r\n\r\n",
		"too long":        "5\r\nhello, world\r\n0\r\n\r\n",
		"length trailer":  "5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n",
		"huge":            "ffffffffffffffff\r\nhello",
		"not hexadecimal": "5\r\nhello\r\nz\r\n\r\n",
	} {
		for _, part := range []string{"at once", "later"} {
			t.Run(name+" "+part, func(t *testing.T) {
				r := start(t, relay.Config{}, b)
				c := r.dial()
				head := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
				if part == "later" {
					c.send(head + "1\r\nx\r\n")
					chunks := chunks
					testwait.Until(t, "the request upstream", func() bool { return r.pools[0].Open() > 0 })
					c.send(chunks + "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n")
				} else {
					c.send(head + chunks + "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n")
				}
				resp, _ := c.response("POST")
				if resp.StatusCode != 400 || !resp.Close {
					t.Errorf("status %d, close %v", resp.StatusCode, resp.Close)
				}
				if rest := c.rest(); rest != "" {
					t.Errorf("after it came %q", rest)
				}
			})
		}
	}
	if n := whole.Load(); n != 0 {
		t.Errorf("%d bodies looked whole", n)
	}
}

func TestPipelining(t *testing.T) {
	r := start(t, relay.Config{}, backend(t, echo), backend(t, echo))
	c := r.dial()
	var all strings.Builder
	const n = 200
	for i := range n {
		body := strings.Repeat(fmt.Sprintf("%d.", i), i)
		if i%2 == 0 {
			fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body)
		} else {
			fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", i, len(body), body)
		}
	}
	go func() { _, _ = io.WriteString(c.TCPConn, all.String()) }()
	for i := range n {
		_, body := c.response("POST")
		if want := strings.Repeat(fmt.Sprintf("%d.", i), i); body != want {
			t.Fatalf("answer %d is %.40q, want %.40q", i, body, want)
		}
	}
}

// A byte at a time, requests and responses are the same.
func TestByteByByte(t *testing.T) {
	b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		for {
			q, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			body, err := io.ReadAll(q.Body)
			if err != nil {
				return
			}
			answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n%x;e=1\r\n%s\r\n0\r\nX-T: %s\r\n\r\n", len(body), body, q.Trailer.Get("X-Q"))
			for i := range len(answer) {
				if _, err := io.WriteString(c, answer[i:i+1]); err != nil {
					return
				}
			}
		}
	})
	r := start(t, relay.Config{}, b)
	c := r.dial()
	for range 2 {
		for _, b := range []byte("POST / HTTP/1.1\r\nHost: a\r\nTrailer: X-Q\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7\r\n, world\r\n0\r\nX-Q: q\r\n\r\n") {
			c.send(string(b))
		}
		resp, body := c.response("POST")
		if body != "hello, world" || resp.Trailer.Get("X-T") != "q" {
			t.Fatalf("%q, trailers %v", body, resp.Trailer)
		}
	}
}

func TestOldVersion(t *testing.T) {
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n"
	length := "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
	for _, c := range []struct{ name, answer, request, want string }{
		{"chunked", chunked, "GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello"},
		{"chunked, keep-alive", chunked, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello"},
		{"length", length, "GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nconnection: close\r\n\r\nhello"},
		{
			"length, keep-alive", length, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nconnection: keep-alive\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 5\r\nconnection: close\r\n\r\nhello",
		},
		{"until the end", "HTTP/1.0 200 OK\r\n\r\nhello", "GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := canned(t, c.answer)
			if strings.Contains(c.answer, "HTTP/1.0 ") {
				b = raw(t, func(conn *net.TCPConn, r *bufio.Reader) {
					if _, err := http.ReadRequest(r); err == nil {
						_, _ = io.WriteString(conn, c.answer)
					}
				})
			}
			r := start(t, relay.Config{}, b)
			conn := r.dial()
			conn.send(c.request)
			if got := conn.rest(); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// What an answer without a body says of one must not be waited for.
func TestNoBody(t *testing.T) {
	for _, c := range []struct{ method, answer, want string }{
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"},
		{"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"},
		{"HEAD", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"},
		{"GET", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"},
		{"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n"},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
	} {
		r := start(t, relay.Config{}, canned(t, c.answer))
		conn := r.dial()
		for range 3 {
			conn.send(c.method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
			got := make([]byte, len(c.want))
			if _, err := io.ReadFull(conn.r, got); err != nil || string(got) != c.want {
				t.Errorf("%s %q: %q, %v", c.method, c.answer, got, err)
			}
		}
		if n := r.pools[0].Open(); n != 1 {
			t.Errorf("%s %q: %d connections upstream, want the same one each time", c.method, c.answer, n)
		}
	}
}

// What stands behind an answer answers nothing: the next request goes elsewhere.
func TestBytesBehindAnAnswer(t *testing.T) {
	r := start(t, relay.Config{}, canned(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"))
	c := r.dial()
	for range 3 {
		c.send(get())
		if _, body := c.response("GET"); body != "ok" {
			t.Fatalf("got %q", body)
		}
	}
}

// So does what comes while the connection is idle.
func TestUnaskedAnswer(t *testing.T) {
	send, sent := make(chan struct{}), make(chan struct{})
	b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		for {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			if _, ok := <-send; !ok {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			sent <- struct{}{}
		}
	})
	r := start(t, relay.Config{}, b)
	c := r.dial()
	defer close(send)
	for range 3 {
		c.send(get())
		if _, body := c.response("GET"); body != "ok" {
			t.Fatalf("got %q", body)
		}
		send <- struct{}{}
		<-sent
	}
}

func TestMalformedAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"CL and TE":   "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"two CL":      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
		"bare LF":     "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
		"not HTTP":    "220 mail.example ESMTP\r\n\r\n",
		"101 unasked": "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, relay.Config{}, canned(t, answer))
			c := r.dial()
			c.send(get())
			resp, _ := c.response("GET")
			if resp.StatusCode != 502 || r.pools[0].Open() != 0 {
				t.Errorf("status %d, %d connections upstream", resp.StatusCode, r.pools[0].Open())
			}
			// The client's own connection is none the worse.
			c.send(get())
			c.response("GET")
		})
	}
}

func TestLimits(t *testing.T) {
	r := start(t, relay.Config{MaxBody: 100}, backend(t, echo))
	for name, c := range map[string]struct {
		text   string
		status int
	}{
		"head":          {get("X: " + strings.Repeat("y", 70<<10) + "\r\n"), 431},
		"fields":        {get(strings.Repeat("X: y\r\n", 200)), 431},
		"large head":    {get("X: " + strings.Repeat("y", 60<<10) + "\r\n"), 200},
		"body":          {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n" + strings.Repeat("x", 101), 413},
		"chunked body":  {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + strings.Repeat("x", 101) + "\r\n0\r\n\r\n", 413},
		"body it takes": {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n" + strings.Repeat("x", 100), 200},
	} {
		conn := r.dial()
		go func() { _, _ = io.WriteString(conn.TCPConn, c.text) }()
		resp, _ := conn.response("POST")
		if resp.StatusCode != c.status {
			t.Errorf("%s: status %d, want %d", name, resp.StatusCode, c.status)
		}
	}
}
