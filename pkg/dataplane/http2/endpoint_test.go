package http2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/freshmesh/freshmesh/internal/testwait"
)

// scripted is an endpoint that does what each test says with a connection that has greeted.
func scripted(t testing.TB, settings []http2.Setting, script func(c *rawConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer nc.Close()
				if _, err := io.ReadFull(nc, make([]byte, len(preface))); err != nil {
					return
				}
				c := &rawConn{nc, http2.NewFramer(nc, nc)}
				c.AllowIllegalWrites = true
				_ = c.WriteSettings(settings...)
				script(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// request waits for the end of the next request and gives its stream; 0 when the connection is over.
func (c *rawConn) request() uint32 {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return 0
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				return f.StreamID
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				return f.StreamID
			}
		}
	}
}

func (c *rawConn) respond(id uint32, end bool, fields ...string) {
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(fields...), EndHeaders: true, EndStream: end})
}

// get asks the rig and gives status, body and Proxy-Status.
func get(t testing.TB, client *http.Client, addr string) (int, string, string, error) {
	t.Helper()
	resp, err := client.Get("http://" + addr + "/")
	if err != nil {
		return 0, "", "", err
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, string(text), resp.Header.Get("Proxy-Status"), err
}

// TestEndpointTrouble: what an endpoint does wrong, and what the client hears.
func TestEndpointTrouble(t *testing.T) {
	tests := []struct {
		name   string
		script func(c *rawConn)
		status int
		reason string
	}{
		{"closes before an answer", func(c *rawConn) { c.request() }, 502, "reset_before_headers"},
		{"refuses the stream", func(c *rawConn) {
			for id := c.request(); id != 0; id = c.request() {
				_ = c.WriteRSTStream(id, http2.ErrCodeRefusedStream)
			}
		}, 503, "stream_refused"},
		{"resets the stream", func(c *rawConn) {
			for id := c.request(); id != 0; id = c.request() {
				_ = c.WriteRSTStream(id, http2.ErrCodeInternal)
			}
		}, 502, "reset_before_headers"},
		{"answers without status", func(c *rawConn) {
			for id := c.request(); id != 0; id = c.request() {
				c.respond(id, true, "x", "y")
			}
		}, 502, "protocol_error"},
		{"answers with a field of HTTP/1.1", func(c *rawConn) {
			for id := c.request(); id != 0; id = c.request() {
				c.respond(id, true, ":status", "200", "connection", "close")
			}
		}, 502, "protocol_error"},
		{"switches protocols", func(c *rawConn) {
			for id := c.request(); id != 0; id = c.request() {
				c.respond(id, false, ":status", "101")
			}
		}, 502, "protocol_error"},
		{"data first", func(c *rawConn) {
			for id := c.request(); id != 0; id = c.request() {
				_ = c.WriteData(id, true, []byte("x"))
			}
		}, 502, "protocol_error"},
		{"ends with an interim response", func(c *rawConn) {
			for id := c.request(); id != 0; id = c.request() {
				c.respond(id, true, ":status", "103")
			}
		}, 502, "protocol_error"},
		{"interim responses without end", func(c *rawConn) {
			id := c.request()
			for range 1000 {
				c.respond(id, false, ":status", "103")
			}
			c.request()
		}, 502, "protocol_error"},
		{"pushes", func(c *rawConn) {
			id := c.request()
			_ = c.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: 2, BlockFragment: getBlock(), EndHeaders: true})
			c.request()
		}, 502, "protocol_error"},
		{"breaks the compression", func(c *rawConn) {
			id := c.request()
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
			c.request()
		}, 502, "protocol_error"},
		{"a shorter body than it says", func(c *rawConn) {
			id := c.request()
			c.respond(id, true, ":status", "200", "content-length", "5")
			c.request()
		}, 502, "protocol_error"},
		{"a large frame", func(c *rawConn) {
			id := c.request()
			c.respond(id, false, ":status", "503")
			_ = c.WriteData(id, false, make([]byte, 20<<10))
			c.request()
		}, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rig := startRelay(t, &relayRig{}, scripted(t, nil, tt.script))
			code, text, proxyStatus, err := get(t, goClient(t), rig.addr)
			if tt.status == 0 {
				if err == nil {
					t.Fatalf("an answer that was cut came as whole: %d %q", code, text)
				}
				return
			}
			if err != nil || code != tt.status || !strings.Contains(text, ": "+tt.reason+": ") || !strings.Contains(proxyStatus, "reason="+tt.reason) {
				t.Errorf("%d %q %q %v", code, text, proxyStatus, err)
			}
		})
	}
}

// TestNotHTTP2: what listens at the endpoint speaks something else, or nothing.
func TestNotHTTP2(t *testing.T) {
	serve := func(f func(nc net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				wg.Go(func() {
					defer nc.Close()
					f(nc)
				})
			}
		})
		t.Cleanup(func() {
			_ = l.Close()
			wg.Wait()
		})
		return l.Addr().String()
	}
	tests := []struct {
		name, reason string
		serve        func(nc net.Conn)
	}{
		{"HTTP/1.1", "protocol_error", func(nc net.Conn) {
			_, _ = nc.Read(make([]byte, 10))
			_, _ = io.WriteString(nc, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_, _ = io.Copy(io.Discard, nc)
		}},
		{"another first frame", "protocol_error", func(nc net.Conn) {
			_ = http2.NewFramer(nc, nil).WritePing(false, [8]byte{})
			_, _ = io.Copy(io.Discard, nc)
		}},
		{"silence", "connect_timeout", func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) }},
		{"an end", "connect_failed", func(nc net.Conn) { _, _ = nc.Read(make([]byte, 10)) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rig := startRelay(t, &relayRig{pool: PoolConfig{ConnectTimeout: 200 * time.Millisecond}}, serve(tt.serve))
			code, text, _, err := get(t, goClient(t), rig.addr)
			if err != nil || code < 502 && code != 503 || !strings.Contains(text, ": "+tt.reason+": ") {
				t.Errorf("%d %q %v", code, text, err)
			}
		})
	}
}

// gate allows so many connections.
type gate struct{ left atomic.Int64 }

func (g *gate) Open() error {
	if g.left.Add(-1) < 0 {
		g.left.Add(1)
		return errors.New("no more connections")
	}
	return nil
}
func (g *gate) Closed() { g.left.Add(1) }

// TestStreamLimits: the endpoint's limit holds, 1 included, whether there may be more connections or not.
func TestStreamLimits(t *testing.T) {
	for _, limit := range []uint32{1, 3} {
		for _, conns := range []int64{1, 2, 100} {
			t.Run(fmt.Sprintf("%d streams, %d connections", limit, conns), func(t *testing.T) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				var protocols http.Protocols
				protocols.SetUnencryptedHTTP2(true)
				var active, most atomic.Int64
				s := &http.Server{
					Protocols: &protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: int(limit)},
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						n := active.Add(1)
						for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						}
						_, _ = io.Copy(w, r.Body)
						active.Add(-1)
					}),
				}
				var wg sync.WaitGroup
				wg.Go(func() { _ = s.Serve(l) })
				t.Cleanup(func() { _ = s.Close(); wg.Wait() })
				g := &gate{}
				g.left.Store(conns)
				rig := startRelay(t, &relayRig{gate: g, patient: true}, l.Addr().String())
				client := goClient(t)
				var all sync.WaitGroup
				for i := range 100 {
					all.Go(func() {
						want := fmt.Sprint(i)
						resp, err := client.Post("http://"+rig.addr+"/", "text/plain", strings.NewReader(want))
						if err != nil {
							t.Error(err)
							return
						}
						got, err := io.ReadAll(resp.Body)
						_ = resp.Body.Close()
						if err != nil || string(got) != want {
							t.Errorf("%d %q %v", resp.StatusCode, got, err)
						}
					})
				}
				all.Wait()
				if n := int64(rig.pools[0].connections()); n > conns {
					t.Errorf("%d connections", n)
				}
				if n := most.Load(); n > int64(limit)*conns {
					t.Errorf("%d requests at once", n)
				}
			})
		}
	}
}

// TestStreamLimitError: where the request does not wait, the error names the limit of streams.
func TestStreamLimitError(t *testing.T) {
	g := &gate{}
	g.left.Store(1)
	hold := make(chan struct{})
	backend := scripted(t, []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 1}}, func(c *rawConn) {
		id := c.request()
		<-hold
		c.respond(id, true, ":status", "204")
		c.request()
	})
	rig := startRelay(t, &relayRig{gate: g}, backend)
	client := goClient(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		if code, _, _, err := get(t, client, rig.addr); code != 204 {
			t.Error(code, err)
		}
	})
	testwait.Until(t, "the one stream is taken", func() bool { return rig.pools[0].calls() == 1 })
	code, text, _, err := get(t, client, rig.addr)
	if code != 503 || !strings.Contains(text, "connection: stream_limit: "+backend) {
		t.Errorf("%d %q %v", code, text, err)
	}
	close(hold)
	wg.Wait()
}

// calls is how many calls are on the pool's connections.
func (p *Pool) calls() (n int) {
	for _, c := range p.inService() {
		c.mu.Lock()
		n += len(c.calls)
		c.mu.Unlock()
	}
	return n
}

// TestEndpointGoesAway: requests above the last stream of a GOAWAY go to
// another connection, whatever they are; those below it get their answers.
func TestEndpointGoesAway(t *testing.T) {
	var conns atomic.Int64
	backend := scripted(t, nil, func(c *rawConn) {
		if conns.Add(1) > 1 {
			for id := c.request(); id != 0; id = c.request() {
				c.respond(id, true, ":status", "204")
			}
			return
		}
		first := c.request()
		second := c.request()
		_ = c.WriteGoAway(first, http2.ErrCodeNo, nil)
		c.respond(first, true, ":status", "202")
		_ = second
		c.request()
	})
	rig := startRelay(t, &relayRig{attempts: 3}, backend)
	client := goClient(t)
	codes := make(chan int, 2)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			resp, err := client.Post("http://"+rig.addr+"/", "text/plain", strings.NewReader("not idempotent"))
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
			codes <- resp.StatusCode
		})
	}
	wg.Wait()
	if a, b := <-codes, <-codes; a+b != 202+204 {
		t.Errorf("statuses %d and %d", a, b)
	}
}

// TestRetryRepeatsTheBody: a body that has been sent already goes to the next endpoint whole, with what comes later.
func TestRetryRepeatsTheBody(t *testing.T) {
	refusing := scripted(t, nil, func(c *rawConn) {
		_ = c.WriteWindowUpdate(0, 1<<20)
		for {
			f, err := c.ReadFrame()
			if err != nil {
				return
			}
			if d, ok := f.(*http2.DataFrame); ok && len(d.Data()) > 0 {
				_ = c.WriteRSTStream(d.StreamID, http2.ErrCodeRefusedStream)
			}
		}
	})
	rig := startRelay(t, &relayRig{attempts: 2}, refusing, startBackend(t, http.HandlerFunc(answer)))
	client := goClient(t)
	for i := range 20 {
		pr, pw := io.Pipe()
		size := 1000 * i
		go func() {
			for range 10 {
				_, _ = pw.Write(bytes.Repeat([]byte("x"), size/10))
			}
			_ = pw.Close()
		}()
		resp, err := client.Post("http://"+rig.addr+"/", "text/plain", pr)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(text) != fmt.Sprint(size) {
			t.Fatalf("%d %q %v", size, text, err)
		}
	}
}

// TestBrokenOff: an answer that breaks off ends the client's stream abnormally, and a gRPC call with a status.
func TestBrokenOff(t *testing.T) {
	rig := startRelay(t, &relayRig{}, scripted(t, nil, func(c *rawConn) {
		for id := c.request(); id != 0; id = c.request() {
			c.respond(id, false, ":status", "200", "content-type", "application/grpc")
			_ = c.WriteData(id, false, []byte("some"))
			_ = c.WriteRSTStream(id, http2.ErrCodeInternal)
		}
	}))
	code, text, _, err := get(t, goClient(t), rig.addr)
	if err == nil || text != "some" {
		t.Errorf("%d %q %v", code, text, err)
	}
	stream, err := testgrpc.NewTestServiceClient(dialGRPC(t, rig.addr)).StreamingOutputCall(t.Context(), &testgrpc.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = stream.Recv(); status.Code(err) == codes.OK {
		t.Error(err)
	}
}

// TestHeads: interim responses, HEAD, answers without body, and a field that may not go on.
func TestHeads(t *testing.T) {
	rig := startRelay(t, &relayRig{}, startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/early":
			w.Header().Set("Link", "</x>")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusNoContent)
		case "/not-modified":
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("Content-Length", "10")
			w.Header().Set("X-Got", r.Header.Get("Proxy-Authorization")+"|"+r.Header.Get("Cookie"))
			_, _ = io.WriteString(w, "0123456789")
		}
	})))
	client := goClient(t)
	do := func(method, path string) (*http.Response, string) {
		var early int
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if early = code; h.Get("Link") != "</x>" {
				t.Errorf("interim fields %v", h)
			}
			return nil
		}})
		req, err := http.NewRequestWithContext(ctx, method, "http://"+rig.addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Proxy-Authorization", "for us")
		req.Header.Set("Cookie", "a=b; c=d")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if want := path == "/early"; (early == http.StatusEarlyHints) != want {
			t.Errorf("%s: interim %d", path, early)
		}
		return resp, string(text)
	}
	if resp, text := do("GET", "/"); text != "0123456789" || resp.Header.Get("X-Got") != "|a=b; c=d" {
		t.Errorf("GET: %q %v", text, resp.Header)
	}
	if resp, text := do("HEAD", "/"); text != "" || resp.ContentLength != 10 {
		t.Errorf("HEAD: %q %d", text, resp.ContentLength)
	}
	if resp, _ := do("GET", "/early"); resp.StatusCode != http.StatusNoContent {
		t.Errorf("early hints: %d", resp.StatusCode)
	}
	if resp, _ := do("GET", "/not-modified"); resp.StatusCode != http.StatusNotModified {
		t.Errorf("not modified: %d", resp.StatusCode)
	}
}

// TestDeadline: Expired ends a request before its answer with an answer, and later by breaking off.
func TestDeadline(t *testing.T) {
	release := make(chan struct{})
	rig := startRelay(t, &relayRig{timeout: 100 * time.Millisecond}, startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})))
	client := goClient(t)
	if code, text, _, err := get(t, client, rig.addr); code != 504 || !strings.Contains(text, "upstream: deadline") {
		t.Errorf("%d %q %v", code, text, err)
	}
	resp, err := client.Get("http://" + rig.addr + "/begun")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("an answer over its time ended well")
	}
	_ = resp.Body.Close()
	close(release)
}

// TestClientGoes: the endpoint hears that a client has reset its stream, or closed its connection.
func TestClientGoes(t *testing.T) {
	over := make(chan struct{}, 2)
	rig := startRelay(t, &relayRig{}, startBackend(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		over <- struct{}{}
	})))
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+rig.addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := goClient(t).Do(req); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	testwait.Until(t, "it is on its way", func() bool { return rig.pools[0].calls() == 1 })
	cancel()
	<-over
	wg.Wait()
	c := dialRaw(t, rig.addr)
	c.writeBlock(t, 1, getBlock())
	testwait.Until(t, "the next is on its way", func() bool { return rig.pools[0].calls() == 1 })
	_ = c.Close()
	<-over
}

// TestLeaving: a client that is told to go gets its answers, and then its connection is closed.
func TestLeaving(t *testing.T) {
	release := make(chan struct{})
	rig := startRelay(t, &relayRig{}, startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		w.WriteHeader(204)
	})))
	c := dialRaw(t, rig.addr)
	c.writeBlock(t, 1, getBlock())
	testwait.Until(t, "it is on its way", func() bool { return rig.pools[0].calls() == 1 })
	rig.mu.Lock()
	for v := range rig.servers {
		v.GoAway()
	}
	rig.mu.Unlock()
	var lasts []uint32
	answered := map[uint32]bool{}
	for {
		f, err := c.ReadFrame()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("the connection ended with %v", err)
			}
			break
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			lasts = append(lasts, f.LastStreamID)
			if len(lasts) == 1 {
				// Sent before it knew.
				c.writeBlock(t, 3, getBlock())
			} else {
				// Too late: not served, and said so by the number.
				c.writeBlock(t, 5, getBlock())
				close(release)
			}
		case *http2.HeadersFrame:
			answered[f.StreamID] = true
		}
	}
	if len(lasts) != 2 || lasts[0] != maxID || lasts[1] != 3 || len(answered) != 2 || !answered[1] || !answered[3] {
		t.Errorf("GOAWAYs %v, answered %v", lasts, answered)
	}
}

// TestSlowReader: a stream that nobody reads holds none of the others up, on
// the client's connection nor on that to the endpoint, and has no more in us than its window.
func TestSlowReader(t *testing.T) {
	rig := startRelay(t, &relayRig{}, startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(make([]byte, 8<<20))
			return
		}
		_, _ = io.Copy(w, r.Body)
	})))
	client := goClient(t)
	slow, err := client.Get("http://" + rig.addr + "/large")
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the window is used up", func() bool { return rig.pools[0].calls() == 1 && rig.queued() > 0 })
	other := goClient(t)
	for range 100 {
		for _, c := range []*http.Client{client, other} {
			body := strings.Repeat("x", 10_000)
			resp, err := c.Post("http://"+rig.addr+"/", "", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || string(got) != body {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
		}
	}
	if n := rig.queued(); n > 256<<10 {
		t.Errorf("%d bytes are queued for a stream that nobody reads", n)
	}
	n, err := io.Copy(io.Discard, slow.Body)
	_ = slow.Body.Close()
	if err != nil || n != 8<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// queued is how much waits for clients.
func (r *relayRig) queued() (n int) {
	for _, v := range r.all() {
		v.mu.Lock()
		for _, s := range v.streams {
			n += s.queue.size
		}
		v.mu.Unlock()
	}
	return n
}

// TestConnect: CONNECT and extended CONNECT are streams both ways, with an end of each their own.
func TestConnect(t *testing.T) {
	for _, kind := range []string{"plain", "extended", "refused"} {
		t.Run(kind, func(t *testing.T) {
			var settings []http2.Setting
			if kind == "extended" {
				settings = append(settings, http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
			}
			lists := make(chan []hpack.HeaderField, 1)
			rig := startRelay(t, &relayRig{}, scripted(t, settings, func(c *rawConn) {
				c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
				for {
					f, err := c.ReadFrame()
					if err != nil {
						return
					}
					switch f := f.(type) {
					case *http2.MetaHeadersFrame:
						lists <- f.Fields
						c.respond(f.StreamID, false, ":status", "200")
						_ = c.WriteData(f.StreamID, false, []byte("hello"))
					case *http2.DataFrame:
						_ = c.WriteData(f.StreamID, f.StreamEnded(), bytes.ToUpper(f.Data()))
					}
				}
			}))
			c := dialRaw(t, rig.addr)
			list := block(":method", "CONNECT", ":authority", "a:80")
			if kind != "plain" {
				list = block(":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "a", ":path", "/chat")
			}
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: list, EndHeaders: true})
			var got strings.Builder
			d := hpack.NewDecoder(4096, nil)
			for {
				f, err := c.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				switch f := f.(type) {
				case *http2.HeadersFrame:
					all, err := d.DecodeFull(f.HeaderBlockFragment())
					if err != nil {
						t.Fatal(err)
					}
					if kind == "refused" {
						if all[0].Value != "502" {
							t.Errorf("%v", all)
						}
						return
					}
				case *http2.DataFrame:
					if got.Write(f.Data()); got.String() == "hello" {
						_ = c.WriteData(1, false, []byte("some "))
						_ = c.WriteData(1, true, []byte("more"))
					}
					if f.StreamEnded() {
						if got.String() != "helloSOME MORE" {
							t.Errorf("%q", got.String())
						}
						if fields := <-lists; (len(fields) == 5) != (kind == "extended") {
							t.Errorf("the endpoint got %v", fields)
						}
						return
					}
				}
			}
		})
	}
}
