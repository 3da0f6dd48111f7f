package relay_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// An endpoint that dies within its answer: the client's must not look whole, and no text of ours follows it.
func TestEndpointDiesWithinTheBody(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		reset  bool
	}{
		"length":    {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", false},
		"chunked":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", false},
		"no end":    {"HTTP/1.1 200 OK\r\n\r\nhello", true},
		"head only": {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", false},
		"bad chunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzzz\r\n", false},
	} {
		for _, version := range []string{"1.0", "1.1"} {
			if c.reset && version == "1.0" {
				continue // what a reset takes with it is the kernel's affair
			}
			t.Run(name+" "+version, func(t *testing.T) {
				got := make(chan struct{})
				r := start(t, relay.Config{}, raw(t, func(conn *net.TCPConn, r *bufio.Reader) {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					_, _ = io.WriteString(conn, c.answer)
					if c.reset {
						<-got
						_ = conn.SetLinger(0)
					}
				}))
				conn := r.dial()
				conn.send("GET / HTTP/" + version + "\r\nHost: a\r\n\r\n")
				resp, err := http.ReadResponse(conn.r, &http.Request{Method: "GET"})
				if err != nil {
					t.Fatal(err)
				}
				first := make([]byte, 1)
				if c.reset {
					if _, err := io.ReadFull(resp.Body, first); err != nil {
						t.Fatal(err)
					}
				}
				close(got)
				body, err := io.ReadAll(resp.Body)
				if err == nil || strings.Contains(string(body), "freshmesh") {
					t.Errorf("body %q, error %v", body, err)
				}
				want := upstream.ResetMidBody
				if name == "bad chunk" {
					want = upstream.ProtocolError
				}
				if e := r.lastError(); e.Reason != want {
					t.Errorf("error %v, want %s", e, want)
				}
				testwait.Until(t, "no connection upstream", func() bool { return r.pools[0].Open() == 0 })
			})
		}
	}
}

// What is known of a request that failed decides whether it may be sent again.
func TestWhatIsKnownOfAFailure(t *testing.T) {
	closes := raw(t, func(*net.TCPConn, *bufio.Reader) {})
	reads := raw(t, func(c *net.TCPConn, r *bufio.Reader) { _, _ = http.ReadRequest(r) })
	halfHead := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-")
	})
	second := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		_, _ = http.ReadRequest(r)
	})
	nobody := testaddr.Refused(t)
	for name, c := range map[string]struct {
		endpoint string
		reason   upstream.Reason
		unsent   bool
		reused   bool
		answered bool
		requests int
	}{
		"refused":        {endpoint: nobody, reason: upstream.ConnectRefused, unsent: true},
		"closed at once": {endpoint: closes, reason: upstream.ResetBeforeHeaders},
		"closed later":   {endpoint: reads, reason: upstream.ResetBeforeHeaders},
		"half a head":    {endpoint: halfHead, reason: upstream.ResetBeforeHeaders, answered: true},
		"reused":         {endpoint: second, reason: upstream.ResetBeforeHeaders, reused: true, requests: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, relay.Config{}, c.endpoint)
			conn := r.dial()
			for range c.requests + 1 {
				conn.send(get())
				conn.response("GET")
			}
			e := r.lastError()
			if e.Reason != c.reason || e.Unsent != c.unsent || e.Reused != c.reused || e.Unanswered == c.answered || e.NextHop.String() != c.endpoint {
				t.Errorf("got %+v", e)
			}
		})
	}
}

// Another endpoint gets the request, with all of its body, as long as it is kept.
func TestReplay(t *testing.T) {
	for _, c := range []struct {
		size   int
		status int
	}{{1000, 200}, {60000, 200}, {10 << 20, 502}} {
		for _, chunked := range []bool{false, true} {
			dies := raw(t, func(conn *net.TCPConn, r *bufio.Reader) {
				_, _ = io.CopyN(io.Discard, r, int64(min(c.size, 200<<10)))
			})
			r := start(t, relay.Config{}, backend(t, echo), dies)
			body := strings.Repeat("0123456789", c.size/10)
			var in io.Reader = strings.NewReader(body)
			if chunked {
				in = io.MultiReader(in)
			}
			resp, err := client(t).Post("http://"+r.address, "text/plain", in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != c.status || c.status == 200 && string(got) != body {
				t.Errorf("%d bytes, chunked %v: status %d, %d bytes, %v", c.size, chunked, resp.StatusCode, len(got), err)
			}
		}
	}
}

// A server that closes idle connections, as all do in the end, costs no request.
func TestStaleConnection(t *testing.T) {
	closed := make(chan struct{})
	b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		_ = c.Close()
		closed <- struct{}{}
	})
	r := start(t, relay.Config{}, b)
	c := r.dial()
	for range 5 {
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
		if resp, _ := c.response("POST"); resp.StatusCode != 200 {
			t.Fatalf("status %d", resp.StatusCode)
		}
		<-closed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errors) > 0 {
		t.Errorf("errors %v", r.errors)
	}
}

func TestInterimResponses(t *testing.T) {
	r := start(t, relay.Config{}, canned(t, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	c := r.dial()
	c.send(get())
	for _, want := range []int{103, 102, 200} {
		if resp, _ := c.response("GET"); resp.StatusCode != want || want == 103 && resp.Header.Get("Link") != "</a>" {
			t.Errorf("status %d, want %d: %v", resp.StatusCode, want, resp.Header)
		}
	}
	old := r.dial()
	old.send("GET / HTTP/1.0\r\n\r\n")
	if got := old.rest(); !strings.HasPrefix(got, "HTTP/1.1 200 OK") {
		t.Errorf("HTTP/1.0 got %q", got)
	}
}

func TestExpectContinue(t *testing.T) {
	r := start(t, relay.Config{}, backend(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/no" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		echo(w, q)
	}))
	c := r.dial()
	for range 2 {
		c.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		if resp, _ := c.response("POST"); resp.StatusCode != 100 {
			t.Fatalf("status %d, want 100", resp.StatusCode)
		}
		c.send("hello")
		if resp, body := c.response("POST"); resp.StatusCode != 200 || body != "hello" || resp.Close {
			t.Fatalf("status %d, %q", resp.StatusCode, body)
		}
	}
	// Without the body the connection cannot go on.
	c.send("POST /no HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	if resp, _ := c.response("POST"); resp.StatusCode != 417 || !resp.Close {
		t.Errorf("status %d, close %v", resp.StatusCode, resp.Close)
	}
	if rest := c.rest(); rest != "" {
		t.Errorf("after it %q", rest)
	}
}

// An answer before the request is over reaches the client, though nobody reads the rest.
func TestEarlyAnswer(t *testing.T) {
	for name, f := range map[string]func(c *net.TCPConn){
		"closed":    func(*net.TCPConn) {},
		"left open": func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, io.LimitReader(c, 100)) },
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			r := start(t, relay.Config{}, raw(t, func(c *net.TCPConn, r *bufio.Reader) {
				_, _ = http.ReadRequest(r)
				_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nlong")
				if name == "left open" {
					<-done
				}
				f(c)
			}))
			defer close(done)
			c := r.dial()
			go func() {
				_, _ = io.WriteString(c.TCPConn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n"+strings.Repeat("x", 1<<20))
			}()
			resp, body := c.response("POST")
			if resp.StatusCode != 413 || body != "long" {
				t.Errorf("status %d, %q", resp.StatusCode, body)
			}
			c.rest()
			testwait.Until(t, "no connection upstream", func() bool { return r.pools[0].Open() == 0 })
		})
	}
}

// Both directions at once: each byte of the request is answered before the next is sent.
func TestFullDuplex(t *testing.T) {
	r := start(t, relay.Config{}, backend(t, func(w http.ResponseWriter, q *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		b := make([]byte, 1)
		for {
			n, err := q.Body.Read(b)
			if n > 0 {
				_, _ = w.Write(b[:n])
				_ = rc.Flush()
			}
			if err != nil {
				return
			}
		}
	}))
	c := r.dial()
	c.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
	c.send("1\r\na\r\n")
	resp, err := http.ReadResponse(c.r, &http.Request{Method: "POST"})
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1)
	for _, b := range "abcdefgh" {
		if b != 'a' {
			c.send("1\r\n" + string(b) + "\r\n")
		}
		if _, err := io.ReadFull(resp.Body, got); err != nil || rune(got[0]) != b {
			t.Fatalf("got %q, %v, want %q", got, err, b)
		}
	}
	c.send("0\r\n\r\n")
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	c.send(get())
	c.response("GET")
}

// What is relayed does not pile up, whatever the size.
func TestLargerThanMemory(t *testing.T) {
	const size = 200 << 20
	r := start(t, relay.Config{}, backend(t, func(w http.ResponseWriter, q *http.Request) {
		n, err := io.Copy(io.Discard, q.Body)
		if err != nil || n != size {
			t.Errorf("the endpoint read %d bytes, %v", n, err)
		}
		_, _ = io.CopyN(w, zeros{}, size)
	}))
	runtime.GC()
	var before, during runtime.MemStats
	runtime.ReadMemStats(&before)
	resp, err := client(t).Post("http://"+r.address, "x", io.LimitReader(zeros{}, size))
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	runtime.ReadMemStats(&during)
	if err != nil || n != size {
		t.Errorf("%d bytes, %v", n, err)
	}
	if grown := int64(during.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestUpgrade(t *testing.T) {
	b := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		q, err := http.ReadRequest(r)
		if err != nil || q.Header.Get("Upgrade") != "echo" || q.Header.Get("Connection") != "Upgrade" {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n")
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhi ")
		_, _ = io.Copy(c, r)
		_ = c.CloseWrite()
	})
	r := start(t, relay.Config{}, b)
	c := r.dial()
	// What comes right behind the request belongs to the new protocol.
	c.send(get("Connection: Upgrade\r\nUpgrade: echo\r\n") + "there")
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "echo" {
		t.Fatalf("%v, %v", resp, err)
	}
	c.send(", you")
	_ = c.CloseWrite()
	if got := c.rest(); got != "hi there, you" {
		t.Errorf("got %q", got)
	}
	testwait.Until(t, "no connection upstream", func() bool { return r.pools[0].Open() == 0 })
}

// handler is a function as a Handler.
type handler func(x *relay.Exchange)

func (h handler) Serve(x *relay.Exchange) { h(x) }

func TestConnect(t *testing.T) {
	r := start(t, relay.Config{Handler: handler(func(x *relay.Exchange) {
		if q := x.Request(); q.Method != "CONNECT" || q.Authority != "a:443" || q.Path != "" {
			t.Errorf("request %+v", q.Request)
		}
		c, err := x.Connect()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.Copy(c, io.LimitReader(c, 5))
		_ = c.CloseWrite()
	})})
	c := r.dial()
	c.send("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\nhe")
	c.send("llo")
	if got := c.rest(); got != "HTTP/1.1 200 OK\r\n\r\nhello" {
		t.Errorf("got %q", got)
	}
}

func TestTimeouts(t *testing.T) {
	silent := raw(t, func(c *net.TCPConn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	half := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
		_, _ = io.Copy(io.Discard, r)
	})
	const short = 30 * time.Millisecond
	t.Run("head", func(t *testing.T) {
		c := start(t, relay.Config{HeaderTimeout: short}).dial()
		c.send("GET / HT")
		if got := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 408 ") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("idle", func(t *testing.T) {
		if got := start(t, relay.Config{IdleTimeout: short}).dial().rest(); got != "" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("request body", func(t *testing.T) {
		r := start(t, relay.Config{ReadTimeout: short}, silent)
		c := r.dial()
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")
		c.rest()
		if e := r.lastError(); e.Reason != upstream.BodyTimeout {
			t.Errorf("error %v", e)
		}
	})
	t.Run("response body", func(t *testing.T) {
		r := start(t, relay.Config{ResponseTimeout: short}, half)
		c := r.dial()
		c.send(get())
		c.rest()
		if e := r.lastError(); e.Reason != upstream.ResetMidBody {
			t.Errorf("error %v", e)
		}
	})
	t.Run("slow reader", func(t *testing.T) {
		r := start(t, relay.Config{WriteTimeout: short}, backend(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.CopyN(w, zeros{}, 100<<20) }))
		c := r.dial()
		c.send(get())
		if e := r.lastError(); e.Reason != upstream.SlowReader {
			t.Errorf("error %v", e)
		}
	})
}

// The bounds of one attempt and of the whole request have different reasons.
func TestDeadlines(t *testing.T) {
	silent := raw(t, func(c *net.TCPConn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	half := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
		_, _ = io.Copy(io.Discard, r)
	})
	for name, c := range map[string]struct {
		endpoint      string
		limit, all    time.Duration
		reason        upstream.Reason
		relayed, body bool
	}{
		"attempt":         {endpoint: silent, limit: 30 * time.Millisecond, reason: upstream.TryTimeout},
		"request":         {endpoint: silent, all: 30 * time.Millisecond, reason: upstream.Deadline},
		"request in body": {endpoint: half, limit: time.Minute, all: 100 * time.Millisecond, reason: upstream.Deadline, relayed: true},
		"with an upload":  {endpoint: silent, limit: 100 * time.Millisecond, reason: upstream.TryTimeout, body: true},
	} {
		t.Run(name, func(t *testing.T) {
			var r *rig
			got := make(chan error, 1)
			ready := make(chan struct{})
			r = start(t, relay.Config{Handler: handler(func(x *relay.Exchange) {
				<-ready
				x.CloseAfter()
				if c.all > 0 {
					x.SetDeadline(time.Now().Add(c.all))
				}
				conn, err := r.pools[0].Acquire(x.Context())
				if err != nil {
					t.Error(err)
					return
				}
				_, err = x.Send(conn, c.limit)
				if c.relayed && err == nil {
					err = x.Relay(nil)
				} else {
					_ = x.Respond(504, nil, "late")
				}
				got <- err
			})}, c.endpoint)
			close(ready)
			conn := r.dial()
			if c.body {
				conn.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nhello")
			} else {
				conn.send(get())
			}
			if e, ok := errors.AsType[*upstream.Error](<-got); !ok || e.Reason != c.reason {
				t.Errorf("got %v, want %s", e, c.reason)
			}
			conn.rest()
		})
	}
}

// A client that goes away ends what is done for it.
func TestClientGone(t *testing.T) {
	ended := make(chan struct{}, 1)
	silent := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.Copy(io.Discard, r)
		ended <- struct{}{}
	})
	r := start(t, relay.Config{}, silent)
	c := r.dial()
	c.send(get())
	testwait.Until(t, "the request upstream", func() bool { return r.pools[0].Open() == 1 })
	_ = c.Close()
	<-ended
	if e := r.lastError(); e.Reason != upstream.ClientGone {
		t.Errorf("error %v", e)
	}
	// The same with a body that is not complete.
	c = r.dial()
	c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")
	testwait.Until(t, "the request upstream", func() bool { return r.pools[0].Open() == 1 })
	_ = c.Close()
	<-ended
	if e := r.lastError(); e.Reason != upstream.ClientGone {
		t.Errorf("error %v", e)
	}
}

func TestLeave(t *testing.T) {
	release := make(chan struct{})
	r := start(t, relay.Config{}, backend(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/x" {
			<-release
		}
		_, _ = io.WriteString(w, "ok")
	}))
	idle, busy := r.dial(), r.dial()
	for _, c := range []*conn{idle, busy} {
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := c.response("GET"); resp.Close {
			t.Error("told to go too early")
		}
	}
	busy.send(get())
	testwait.Until(t, "three requests", func() bool { return r.next.Load() >= 3 })
	r.each((*relay.Server).Leave)
	if got := idle.rest(); got != "" {
		t.Errorf("idle: %q", got)
	}
	close(release)
	if resp, body := busy.response("GET"); !resp.Close || body != "ok" {
		t.Errorf("busy: close %v, %q", resp.Close, body)
	}
	busy.rest()
}

// What a client sent before it could know that it is to go is served.
func TestLeaveSettles(t *testing.T) {
	for after, served := range map[time.Duration]bool{900 * time.Millisecond: true, 1100 * time.Millisecond: false} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			c := relay.NewServer(t.Context(), relay.Config{Handler: handler(func(x *relay.Exchange) { _ = x.Respond(200, nil, "ok") })}, far, nil)
			go c.Serve()
			synctest.Wait()
			c.Leave()
			time.Sleep(after) // bubble time
			_, err := io.WriteString(near, get())
			if !served {
				if err == nil {
					t.Error("it is still open")
				}
				return
			}
			resp, err := http.ReadResponse(bufio.NewReader(near), nil)
			if err != nil || !resp.Close {
				t.Errorf("%v, %v", resp, err)
			}
			_ = near.Close()
		})
	}
}

// A cut gives its reason to a request without an answer, and breaks others off.
func TestCut(t *testing.T) {
	cause := &upstream.Error{Reason: upstream.Draining, Err: errors.New("enough")}
	silent := raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		q, err := http.ReadRequest(r)
		if err == nil && q.URL.Path == "/body" {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
		}
		_, _ = io.Copy(io.Discard, r)
	})
	r := start(t, relay.Config{}, silent)
	waiting, within, uploading := r.dial(), r.dial(), r.dial()
	waiting.send(get())
	uploading.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")
	within.send("GET /body HTTP/1.1\r\nHost: a\r\n\r\n")
	resp, err := http.ReadResponse(within.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "three requests upstream", func() bool { return r.pools[0].Open() == 3 })
	r.each(func(c *relay.Server) { c.Cut(cause) })
	for _, c := range []*conn{waiting, uploading} {
		if resp, _ := c.response("GET"); resp.StatusCode != 503 || resp.Header.Get("X-Reason") != "draining" || !resp.Close {
			t.Errorf("status %d, %v", resp.StatusCode, resp.Header)
		}
		c.rest()
	}
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("within its body: %q came to an end", body)
	}
}

// A request's own cancel has no effect on the next one.
func TestCancel(t *testing.T) {
	silent := raw(t, func(c *net.TCPConn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	ok := canned(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	var r *rig
	var n atomic.Int64
	var cancels []func(error)
	ready := make(chan struct{})
	r = start(t, relay.Config{Handler: handler(func(x *relay.Exchange) {
		<-ready
		cancel := x.CancelFunc()
		cancels = append(cancels, cancel)
		which := 1
		if n.Add(1) == 1 {
			which = 0
			time.AfterFunc(20*time.Millisecond, func() { cancel(&upstream.Error{Reason: upstream.EndpointEjected}) })
			<-x.Context().Done()
		}
		conn, err := r.pools[which].Acquire(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		if _, err = x.Send(conn, 0); err != nil {
			_ = x.Respond(503, []message.Field{{Name: "x-reason", Value: string(upstream.ReasonOf(err))}}, "")
			return
		}
		cancels[0](errors.New("too late"))
		_ = x.Relay(nil)
	})}, silent, ok)
	close(ready)
	c := r.dial()
	c.send(get())
	if resp, _ := c.response("GET"); resp.Header.Get("X-Reason") != string(upstream.EndpointEjected) || resp.Close {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	for range 3 {
		c.send(get())
		if _, body := c.response("GET"); body != "ok" {
			t.Errorf("got %q", body)
		}
	}
}
