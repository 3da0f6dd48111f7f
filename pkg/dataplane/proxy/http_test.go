package proxy_test

import (
	"bufio"
	"bytes"
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

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

func TestRoutesByAuthority(t *testing.T) {
	r := newRig(t)
	r.put(newBackend(t, "a", nil).addr)
	for _, authority := range []string{echo, "echo.default:8080", "echo:8080", "echo.default.svc:8080", "ECHO.default.svc.cluster.local.:8080"} {
		if status, _, body := r.get(authority); status != 200 || body != "a" {
			t.Errorf("%s: %d %q", authority, status, body)
		}
	}
	if status, h, _ := r.get("echo"); status != 404 || !strings.Contains(h.Get("Proxy-Status"), "reason=no_such_service") {
		t.Errorf("port 80: %d %v", status, h)
	}
}

func TestAbsoluteForm(t *testing.T) {
	r := newRig(t)
	r.put(newBackend(t, "a", func(w http.ResponseWriter, q *http.Request) { fmt.Fprint(w, q.Host, q.RequestURI) }).addr)
	got := r.raw("GET http://echo:8080/x?y HTTP/1.1\r\nHost: echo:8080\r\nConnection: close\r\n\r\n")
	if !strings.HasSuffix(got, "echo:8080/x?y") {
		t.Errorf("got %q", got)
	}
	// RFC 9112 section 3.2.2 lets the target win; a server behind us may not, and then sees another request.
	got = r.raw("GET http://echo:8080/x?y HTTP/1.1\r\nHost: other\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "connection: close") {
		t.Errorf("got %q", got)
	}
}

// raw writes text to the proxy and gives all that comes back until the end.
func (r *rig) raw(text string) string {
	r.t.Helper()
	c := r.dial(r.addr)
	if _, err := io.WriteString(c, text); err != nil {
		r.t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func (r *rig) dial(addr string) *net.TCPConn {
	r.t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	r.t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func TestErrorsSayWhy(t *testing.T) {
	r := newRig(t)
	status, h, body := r.get("nobody:8080")
	want := `freshmesh; error=destination_not_found; details="cluster nobody.default.svc.cluster.local:8080: no such service or port"; layer=discovery; reason=no_such_service`
	if status != 404 || h.Get("Proxy-Status") != want || !strings.Contains(body, "no_such_service") {
		t.Errorf("unknown: %d %q %q", status, h.Get("Proxy-Status"), body)
	}
	if status, h, _ := r.get("bad_host!:1"); status != 400 || !strings.Contains(h.Get("Proxy-Status"), "reason=bad_authority") {
		t.Errorf("bad authority: %d %v", status, h)
	}
	r.put()
	if status, h, _ := r.get(echo); status != 503 || !strings.Contains(h.Get("Proxy-Status"), "reason=no_endpoints") {
		t.Errorf("empty: %d %v", status, h)
	}
	r.disc.say(true, nil)
	if status, h, _ := r.get("quiet:8080"); status != 503 || !strings.Contains(h.Get("Proxy-Status"), "reason=discovery_pending") {
		t.Errorf("pending: %d %v", status, h)
	}
}

func TestAllDead(t *testing.T) {
	r := newRig(t)
	a, b := newBackend(t, "a", nil), newBackend(t, "b", nil)
	a.kill()
	b.kill()
	r.put(a.addr, b.addr)
	began := time.Now()
	status, h, _ := r.get(echo)
	if status != 503 || !strings.Contains(h.Get("Proxy-Status"), "reason=all_ejected") || !strings.Contains(h.Get("Proxy-Status"), `next-hop="127.0.0.1:`) {
		t.Errorf("%d %v", status, h)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %s", took)
	}
	if r.disc.distrusts() == 0 {
		t.Error("discovery was not asked again")
	}
}

// A request that finds everything dead waits for what discovery brings.
func TestFreshStateSavesTheRequest(t *testing.T) {
	r := newRig(t)
	a, b := newBackend(t, "a", nil), newBackend(t, "b", nil)
	a.kill()
	r.put(a.addr)
	r.disc.mu.Lock()
	r.disc.onDistrust = func(string) { r.put(b.addr) }
	r.disc.mu.Unlock()
	if status, _, body := r.get(echo); status != 200 || body != "b" {
		t.Errorf("%d %q", status, body)
	}
}

func TestPostGoesElsewhereWhenDialFails(t *testing.T) {
	r := newRig(t)
	a := newBackend(t, "a", func(w http.ResponseWriter, q *http.Request) { _, _ = io.Copy(w, q.Body) })
	dead := newBackend(t, "dead", nil)
	dead.kill()
	payload := strings.Repeat("x", 1<<20)
	for range 10 {
		r.put(dead.addr, a.addr)
		resp, err := r.do(http.MethodPost, echo, strings.NewReader(payload))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(b) != payload {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		r.put(a.addr)
	}
}

// hungUp is a server that reads a request's headers and closes.
func hungUp(t testing.TB, after string) (addr string) {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.WriteString(c, after)
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

func TestRetriesOnlyWhatIsSafe(t *testing.T) {
	r := newRig(t)
	bad, good := hungUp(t, ""), newBackend(t, "a", nil).addr
	failed := 0
	for range 20 {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			// An endpoint that comes anew has no bad name yet.
			r.put(good)
			r.put(bad, good)
			resp, err := r.do(method, echo, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			switch {
			case resp.StatusCode == 200:
			case method == http.MethodPost && resp.StatusCode == 502 && strings.Contains(resp.Header.Get("Proxy-Status"), "reason=reset_before_headers"):
				failed++
			default:
				t.Fatalf("%s: %v", method, resp)
			}
		}
	}
	if failed == 0 {
		t.Error("no POST failed, so some were sent twice or the dead endpoint was never picked")
	}
}

// byHand is a server of which serve answers each request: n counts those of
// its connection from 1. Without an answer the connection is closed.
func byHand(t testing.TB, serve func(n int) string) (addr string) {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	var (
		wg   sync.WaitGroup
		open sync.Map
	)
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(c, nil)
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				br := bufio.NewReader(c)
				for n := 1; ; n++ {
					if _, err := http.ReadRequest(br); err != nil {
						return
					}
					answer := serve(n)
					if _, err := io.WriteString(c, answer); err != nil || answer == "" {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		open.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return l.Addr().String()
}

// What one endpoint may have worked on is sent to another one or to none.
func TestSentOnceToEachEndpoint(t *testing.T) {
	for n := 1; n <= 4; n++ {
		r := newRig(t)
		counts := make([]atomic.Int64, n)
		var addrs []string
		for i := range n {
			addrs = append(addrs, byHand(t, func(int) string { counts[i].Add(1); return "" }))
		}
		r.put(addrs...)
		status, h, _ := r.get(echo)
		if status != http.StatusBadGateway || !strings.Contains(h.Get("Proxy-Status"), "reason=reset_before_headers") {
			t.Errorf("%d endpoints: %d %s", n, status, h.Get("Proxy-Status"))
		}
		sum := int64(0)
		for i := range counts {
			sum += counts[i].Load()
			if counts[i].Load() > 1 {
				t.Errorf("%d endpoints: one got the request %d times", n, counts[i].Load())
			}
		}
		if want := int64(min(n, 3)); sum != want {
			t.Errorf("%d endpoints: sent %d times, want %d", n, sum, want)
		}
	}
}

// A server that closes what it takes to be idle, just when a request comes,
// has not worked on it: the same endpoint gets it on another connection.
func TestIdleConnectionClosedUnderTheRequest(t *testing.T) {
	r := newRig(t)
	r.put(byHand(t, func(n int) string {
		if n > 1 {
			return ""
		}
		return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	}))
	for range 4 {
		if status, _, body := r.get(echo); status != 200 || body != "ok" {
			t.Errorf("%d %q", status, body)
		}
	}
}

func TestDeathMidBodyAborts(t *testing.T) {
	r := newRig(t)
	for _, head := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"} {
		r.put(hungUp(t, head))
		resp, err := r.do(http.MethodGet, echo, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil || string(b) != "half" {
			t.Errorf("%q: got %q, %v", head, b, err)
		}
	}
}

func TestTrailersAndInterim(t *testing.T) {
	r := newRig(t)
	r.put(newBackend(t, "a", func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.Header().Set("Trailer", "X-Sum")
		b, _ := io.ReadAll(q.Body)
		_, _ = w.Write(b)
		w.Header().Set("X-Sum", "4")
		w.Header().Set(http.TrailerPrefix+"X-Late", q.Trailer.Get("X-Up"))
	}).addr)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+"/", io.MultiReader(strings.NewReader("body")))
	req.Host = echo
	req.Trailer = http.Header{"X-Up": {"from the client"}}
	hints := ""
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error { hints = fmt.Sprint(code, h.Get("Link")); return nil },
	}))
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || string(b) != "body" || resp.Trailer.Get("X-Sum") != "4" || resp.Trailer.Get("X-Late") != "from the client" {
		t.Errorf("%q %v trailers %v", b, err, resp.Trailer)
	}
	if hints != "103</style.css>" || resp.Header.Get("Link") != "" {
		t.Errorf("interim %q, link %q", hints, resp.Header.Get("Link"))
	}
}

func TestHopByHopStaysBehind(t *testing.T) {
	r := newRig(t)
	seen := make(chan http.Header, 1)
	r.put(newBackend(t, "a", func(w http.ResponseWriter, q *http.Request) {
		seen <- q.Header.Clone()
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("X-Kept", "1")
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, "<html>")
	}).addr)
	got := r.raw("GET / HTTP/1.1\r\nHost: echo:8080\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\nTE: gzip\r\nKeep-Alive: 5\r\n" +
		"Upgrade: h2c\r\nHTTP2-Settings: AAA\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n")
	h := <-seen
	for _, k := range []string{"X-Secret", "Te", "Keep-Alive", "Upgrade", "Http2-Settings", "Connection", "User-Agent", "Accept-Encoding"} {
		if v, ok := h[k]; ok {
			t.Errorf("%s reached the backend: %q", k, v)
		}
	}
	if h.Get("X-Forwarded-For") != "1.2.3.4" {
		t.Error("X-Forwarded-For was touched")
	}
	if strings.Contains(got, "Content-Type") || strings.Contains(got, "timeout=5") || !strings.Contains(got, "X-Kept: 1") {
		t.Errorf("response %q", got)
	}
}

func TestHeadAndExpectContinue(t *testing.T) {
	r := newRig(t)
	r.put(newBackend(t, "a", func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Refuse") != "" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		b, _ := io.ReadAll(q.Body)
		w.Header().Set("Content-Length", "5")
		if q.Method != http.MethodHead {
			fmt.Fprintf(w, "%05d", len(b))
		}
	}).addr)
	if got := r.raw("HEAD / HTTP/1.1\r\nHost: echo:8080\r\nConnection: close\r\n\r\n"); !strings.Contains(got, "Content-Length: 5\r\n") || !strings.HasSuffix(got, "\r\n\r\n") {
		t.Errorf("HEAD: %q", got)
	}
	c := r.dial(r.addr)
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: echo:8080\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	br := bufio.NewReader(c)
	line, err := br.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
		t.Fatalf("%q %v", line, err)
	}
	fmt.Fprint(c, "body")
	rest, _ := io.ReadAll(br)
	if strings.Count(string(rest), "HTTP/1.1 ") != 1 || !bytes.HasSuffix(rest, []byte("00004")) {
		t.Errorf("after 100: %q", rest)
	}
	got := r.raw("POST / HTTP/1.1\r\nHost: echo:8080\r\nConnection: close\r\nRefuse: 1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 417") {
		t.Errorf("refused: %q", got)
	}
}

// Both directions stream at once: each line is answered before the next is sent.
func TestStreamsBothWays(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", h2), func(t *testing.T) {
			r := newRig(t)
			b := newBackend(t, "a", func(w http.ResponseWriter, q *http.Request) {
				rc := http.NewResponseController(w)
				_ = rc.EnableFullDuplex()
				_ = rc.Flush()
				for s := bufio.NewScanner(q.Body); s.Scan(); {
					fmt.Fprintf(w, "got %s\n", s.Text())
					_ = rc.Flush()
				}
			})
			r.putCluster(&discovery.Cluster{HTTP2: h2}, b.addr)
			pr, pw := io.Pipe()
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+"/", pr)
			req.Host = echo
			tr := transport(h2)
			defer tr.CloseIdleConnections()
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			s := bufio.NewScanner(resp.Body)
			for i := range 20 {
				fmt.Fprintf(pw, "%d\n", i)
				if !s.Scan() || s.Text() != fmt.Sprintf("got %d", i) {
					t.Fatalf("line %d: %q %v", i, s.Text(), s.Err())
				}
			}
			_ = pw.Close()
			if s.Scan() {
				t.Errorf("more: %q", s.Text())
			}
		})
	}
}

// transport speaks HTTP/1.1, or HTTP/2 by prior knowledge.
func transport(h2 bool) *http.Transport {
	var p http.Protocols
	p.SetHTTP1(!h2)
	p.SetUnencryptedHTTP2(h2)
	return &http.Transport{Protocols: &p, DisableCompression: true}
}

func TestUpgrade(t *testing.T) {
	r := newRig(t)
	r.put(newBackend(t, "a", func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Upgrade") != "chat" {
			http.Error(w, "no upgrade", 400)
			return
		}
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\nhello\n")
		_, _ = io.Copy(c, buf)
	}).addr)
	c := r.dial(r.addr)
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: echo:8080\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\nearly\n")
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "chat" {
		t.Fatalf("%v %v", resp, err)
	}
	for _, want := range []string{"hello\n", "early\n"} {
		if line, err := br.ReadString('\n'); err != nil || line != want {
			t.Fatalf("%q %v", line, err)
		}
	}
	fmt.Fprint(c, "late\n")
	_ = c.CloseWrite()
	if rest, err := io.ReadAll(br); err != nil || string(rest) != "late\n" {
		t.Errorf("%q %v", rest, err)
	}
}

// A drain tells HTTP/2 clients to go, now and not with their next response.
func TestDrainSendsGoAway(t *testing.T) {
	r := newRig(t)
	r.put(newBackend(t, "a", nil).addr)
	tr := transport(true)
	defer tr.CloseIdleConnections()
	cc, err := tr.NewClientConn(t.Context(), "http", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.addr+"/", nil)
	req.Host = echo
	resp, err := cc.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "a" || resp.Header.Get("Connection") != "" {
		t.Errorf("%q %v %v", b, err, resp.Header)
	}
	_ = resp.Body.Close()
	r.tracker.Drain()
	testwait.Until(t, "the connection takes no more", func() bool { return cc.Available() == 0 })
}

// A client that breaks its own request does not give the endpoint a bad name.
func TestBrokenRequestBody(t *testing.T) {
	r := newRig(t)
	r.put(newBackend(t, "a", func(w http.ResponseWriter, q *http.Request) { _, _ = io.Copy(io.Discard, q.Body) }).addr)
	got := r.raw("POST / HTTP/1.1\r\nHost: echo:8080\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\nnonsense\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 400") || !strings.Contains(got, "reason=bad_request_body") {
		t.Errorf("got %q", got)
	}
	if st := r.set.Status()[0].Endpoints[0]; st.Total.Failed != 0 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

func TestUpgradeIsIgnoredForHTTP2(t *testing.T) {
	r := newRig(t)
	r.putCluster(&discovery.Cluster{HTTP2: true}, newBackend(t, "a", nil).addr)
	got := r.raw("GET / HTTP/1.1\r\nHost: echo:8080\r\nConnection: Upgrade, close\r\nUpgrade: chat\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("got %q", got)
	}
}

// An upload that the upstream answers before its end, as one that is too large.
func TestEarlyAnswer(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		r := newRig(t)
		r.putCluster(&discovery.Cluster{HTTP2: h2}, newBackend(t, "a", func(w http.ResponseWriter, _ *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex()
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_ = rc.Flush()
		}).addr)
		pr, pw := io.Pipe()
		go func() { _, _ = io.WriteString(pw, "some") }()
		resp, err := r.do(http.MethodPost, echo, pr)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		_ = pw.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("http2=%v: %v", h2, resp)
		}
	}
}

// A client that goes away frees the endpoint.
func TestClientGoesAway(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		r := newRig(t)
		gone := make(chan struct{})
		r.putCluster(&discovery.Cluster{HTTP2: h2}, newBackend(t, "a", func(_ http.ResponseWriter, q *http.Request) {
			<-q.Context().Done()
			close(gone)
		}).addr)
		c := r.dial(r.addr)
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: echo:8080\r\n\r\n")
		testwait.Until(t, "in flight", func() bool { return r.set.Status()[0].Endpoints[0].Total.Issued == 1 })
		_ = c.Close()
		<-gone
		testwait.Until(t, "freed", func() bool { return r.set.Status()[0].Endpoints[0].InFlight == 0 })
	}
}

// An error of ours does not wait for a body that is still being sent.
func TestErrorBeforeTheBody(t *testing.T) {
	r := newRig(t)
	c := r.dial(r.addr)
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: nobody:8080\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n")
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 404 {
		t.Errorf("%v %v", resp, err)
	}
}
