package dataplane_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
)

// redirects leads the addresses of services to the outbound listener.
const redirects = `
table ip mesh {
 chain output {
  type nat hook output priority -100
  ip daddr 10.96.0.0/16 meta l4proto tcp redirect to :15001
 }
}
table ip6 mesh {
 chain output {
  type nat hook output priority -100
  ip6 daddr fd00:96::/64 meta l4proto tcp redirect to :15001
 }
}
`

// greeter is a server that speaks first, as MySQL does, and then gives lines back.
func greeter(t *testing.T, address string) string {
	t.Helper()
	return tcpServer(t, address, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("\x4a\x00\x00\x00\x0a8.0.36-greeting\x00"))
		_, _ = io.Copy(c, c)
	})
}

// tcpServer gives each connection to serve, and closes it then, or when the test ends.
func tcpServer(t *testing.T, address string, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
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
				serve(c.(*net.TCPConn))
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

// greeted tells how long the server's greeting took to come.
func greeted(t *testing.T, address string) time.Duration {
	t.Helper()
	began := time.Now()
	c := dial(t, address)
	b := make([]byte, 64)
	n, err := c.Read(b)
	if err != nil || !strings.Contains(string(b[:n]), "greeting") {
		t.Fatalf("greeting from %s: %q, %v", address, b[:n], err)
	}
	took := time.Since(began)
	if _, err := c.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	rest, err := io.ReadAll(c)
	if err != nil || string(rest) != "hello\n" {
		t.Errorf("after the greeting: %q, %v", rest, err)
	}
	return took
}

func TestRedirect(t *testing.T) {
	if !inNamespace(t, redirects) {
		return
	}
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	control.set(echo, a)
	const sql = "sql.default.svc.cluster.local:9999"
	control.set(sql, greeter(t, "127.0.0.1:0"))
	control.alias("10.96.0.1:80", echo)
	control.alias("[fd00:96::1]:80", echo)
	control.alias("10.96.0.1:9999", sql)
	r := start(t, addr, func(c *dataplane.Config) { c.OutboundAddress = ":15001" })
	for _, url := range []string{"http://10.96.0.1/", "http://[fd00:96::1]/"} {
		if status, _, body := r.do(http.MethodGet, url, "any.example.com"); status != 200 || body != "a" {
			t.Errorf("%s: %d %q", url, status, body)
		}
	}
	if status, _, body := r.do(http.MethodGet, "http://127.0.0.1:15001/", echo); status != 200 || body != "a" {
		t.Errorf("a client that knows its proxy: %d %q", status, body)
	}
	if took := greeted(t, "10.96.0.1:9999"); took < 100*time.Millisecond {
		t.Errorf("the upstream was dialled after %v", took)
	}
	r.counts(`cluster="` + echo + `",code_class="2xx",reason="none"}: 3`)
	r.counts(`cluster="` + sql + `",code_class="tcp",reason="none"}: 1`)
	// One byte a packet.
	c := dial(t, "10.96.0.1:80")
	_ = c.SetNoDelay(true)
	for _, b := range []byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("one byte a packet: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	// A service whose endpoints are all dead: told in the words of HTTP, or reset.
	control.set(echo, "127.0.0.1:1")
	testwait.Until(t, "told", func() bool {
		status, h, _ := r.do(http.MethodGet, "http://10.96.0.1/", "x")
		return status == 503 && strings.Contains(h.Get("Proxy-Status"), "reason=all_ejected")
	})
}

func TestUnknownDestinations(t *testing.T) {
	// What the proxy sends itself must not come back to it: here it is told by
	// its source, in a pod by the proxy's user.
	if !inNamespace(t, `
table ip mesh {
 chain output {
  type nat hook output priority -100
  ip daddr 10.0.0.1 ip saddr 127.0.0.1 meta l4proto tcp redirect to :15001
 }
}`) {
		return
	}
	_, addr := newControl(t)
	server := greeter(t, "10.0.0.1:7777")
	local := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	for _, refuse := range []bool{true, false} {
		r := start(t, addr, func(c *dataplane.Config) { c.OutboundAddress, c.RefuseUnknown = ":15001", refuse })
		conn, err := local.DialContext(t.Context(), "tcp", server)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		words := "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
		if _, err := io.WriteString(conn, words); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(conn)
		_ = conn.Close()
		switch {
		case err != nil:
			t.Errorf("refuse %v: %v", refuse, err)
		case refuse && (!strings.HasPrefix(string(got), "HTTP/1.1 403") || !strings.Contains(string(got), "reason=unknown_destination")):
			t.Errorf("refused: %q", got)
		case !refuse && (!strings.Contains(string(got), "greeting") || !strings.HasSuffix(string(got), words)):
			t.Errorf("passed: %q", got)
		}
		if !refuse {
			r.counts(`freshmesh_requests_total{cluster="passthrough",code_class="tcp",reason="none"}: 1`)
		}
		r.end()
	}
}

func TestInbound(t *testing.T) {
	// The proxy's own connections to the application are told by their source, as
	// in a pod they are by the proxy's user.
	rules := `
table ip mesh {
 chain output {
  type nat hook output priority -100
  ip daddr 10.0.0.1 ip saddr 127.0.0.1 tcp dport { 8080, 8081, 15006 } redirect to :15006
 }
}`
	if !inNamespace(t, rules) {
		return
	}
	_, addr := newControl(t)
	app, err := net.Listen("tcp", "10.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto+" "+r.Host)
	}), Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(app) }()
	t.Cleanup(func() { _ = server.Close() })
	start(t, addr, func(c *dataplane.Config) { c.InboundAddress = ":15006" })

	local := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, Timeout: 5 * time.Second}
	get := func(url string, http2 bool) (*http.Response, string) {
		t.Helper()
		tr := &http.Transport{DisableKeepAlives: true, Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, a string) (net.Conn, error) { return local.DialContext(ctx, "tcp", a) }}
		tr.Protocols.SetHTTP1(!http2)
		tr.Protocols.SetUnencryptedHTTP2(http2)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close(); tr.CloseIdleConnections() }()
		b, _ := io.ReadAll(resp.Body)
		return resp, string(b)
	}
	if _, body := get("http://10.0.0.1:8080/", false); body != "HTTP/1.1 10.0.0.1:8080" {
		t.Errorf("HTTP/1: %q", body)
	}
	if _, body := get("http://10.0.0.1:8080/", true); body != "HTTP/2.0 10.0.0.1:8080" {
		t.Errorf("HTTP/2: %q", body)
	}
	began := time.Now()
	resp, _ := get("http://10.0.0.1:8081/", false)
	if got := resp.Header.Get("Proxy-Status"); resp.StatusCode != 503 || !strings.Contains(got, `next-hop="10.0.0.1:8081"`) {
		t.Errorf("nobody listens: %d %s", resp.StatusCode, got)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("fail-fast took %v", took)
	}
	if resp, _ := get("http://127.0.0.1:15006/", false); resp.StatusCode != 421 || !strings.Contains(resp.Header.Get("Proxy-Status"), "reason=not_captured") {
		t.Errorf("not captured: %d %v", resp.StatusCode, resp.Header)
	}
	if resp, _ := get("http://10.0.0.1:15006/", false); resp.StatusCode != 508 || !strings.Contains(resp.Header.Get("Proxy-Status"), "reason=loop") {
		t.Errorf("loop: %d %v", resp.StatusCode, resp.Header)
	}
}

func TestTPROXY(t *testing.T) {
	rules := `
table inet mesh {
 chain prerouting {
  type filter hook prerouting priority mangle
  ip daddr 10.96.0.0/16 meta l4proto tcp tproxy ip to 127.0.0.1:15001 meta mark set 1 accept
  ip6 daddr fd00:96::/64 meta l4proto tcp tproxy ip6 to [::1]:15001 meta mark set 1 accept
 }
 chain output {
  type route hook output priority mangle
  ip daddr 10.96.0.0/16 meta l4proto tcp meta mark set 1
  ip6 daddr fd00:96::/64 meta l4proto tcp meta mark set 1
 }
}`
	if !inNamespace(t, rules) {
		return
	}
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	control.set(echo, a)
	control.alias("10.96.0.1:80", echo)
	control.alias("[fd00:96::1]:80", echo)
	const v4, v6 = "http://10.96.0.1/", "http://[fd00:96::1]/"
	for at, urls := range map[string][]string{":15001": {v4, v6}, "127.0.0.1:15001": {v4}, "[::1]:15001": {v6}} {
		r := start(t, addr, func(c *dataplane.Config) { c.OutboundAddress, c.Transparent = at, true })
		for _, url := range urls {
			if status, _, body := r.do(http.MethodGet, url, "x"); status != 200 || body != "a" {
				t.Errorf("%s at %s: %d %q", url, at, status, body)
			}
		}
		r.end()
	}
}
