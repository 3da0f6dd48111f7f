package dataplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// toHost leads what comes from 127.0.0.1 for 10.0.0.1 to the outbound listener.
// What the proxy sends there itself has another source.
const toHost = `
table ip host {
 chain output {
  type nat hook output priority -100
  ip daddr 10.0.0.1 ip saddr 127.0.0.1 meta l4proto tcp redirect to :15001
 }
}
`

// from127 makes a connection that toHost catches.
func from127(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c.(*net.TCPConn)
}

// named is a server that answers what it hears first with its name and that, whatever it is.
func named(t *testing.T, address, name string) string {
	t.Helper()
	return tcpServer(t, address, func(c *net.TCPConn) {
		b := make([]byte, 4096)
		n, _ := c.Read(b)
		_, _ = fmt.Fprintf(c, "%s|%s", name, b[:n])
	})
}

// logLine is what these tests look for in the access log.
type logLine struct {
	Client, Protocol, Cluster, Reason, Error string
	Status                                   int
	BytesReceived, BytesSent                 int64
	Attempts                                 []struct{ Endpoint, Reason string }
}

// accessLog makes a proxy log to a file, and gives what waits for its line n, from 1.
func accessLog(t *testing.T) (func(*dataplane.Config), func(n int) logLine) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "access.log")
	return func(c *dataplane.Config) { c.AccessLog = file }, func(n int) logLine {
		t.Helper()
		var lines []string
		testwait.Until(t, fmt.Sprintf("line %d", n), func() bool {
			b, _ := os.ReadFile(file)
			lines = strings.SplitAfter(string(b), "\n")
			return len(lines) > n
		})
		var l logLine
		if err := json.Unmarshal([]byte(lines[n-1]), &l); err != nil {
			t.Fatalf("%q: %v", lines[n-1], err)
		}
		return l
	}
}

const words = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

// TestCapturedPorts: what begins like HTTP passes as it is on ports that are
// opaque, by the default list, by flag or by annotation; and on those that are
// skipped it passes to where it was going, whatever the control plane knows.
func TestCapturedPorts(t *testing.T) {
	if !inNamespace(t, redirects+toHost) {
		return
	}
	control, addr := newControl(t)
	for _, port := range []int{6379, 7001, 7002, 7003, 7004, 7005, 7006} {
		name := fmt.Sprintf("s%d.default.svc.cluster.local:%d", port, port)
		control.set(name, named(t, "127.0.0.1:0", "service"))
		control.alias(fmt.Sprintf("10.96.0.1:%d", port), name)
		control.alias(fmt.Sprintf("10.0.0.1:%d", port), name)
		named(t, fmt.Sprintf("10.0.0.1:%d", port), "host")
	}
	control.mark("s7002.default.svc.cluster.local:7002", mesh.OpaqueKey)
	control.mark("s7005.default.svc.cluster.local:7005", mesh.SkipKey)
	type want struct{ to, answer, cluster string }
	service := func(port int) string { return fmt.Sprintf("s%d.default.svc.cluster.local:%d", port, port) }
	for _, run := range []struct {
		name   string
		change func(*dataplane.Config)
		want   []want
	}{
		{"without flags", func(*dataplane.Config) {}, []want{
			{"10.96.0.1:6379", "service|" + words, service(6379)},
			{"10.96.0.1:7002", "service|" + words, service(7002)},
			{"10.96.0.1:7003", "HTTP/1.1 502 Bad Gateway", service(7003)},
			{"10.0.0.1:7005", "host|" + words, service(7005)},
			{"10.0.0.1:7006", "HTTP/1.1 502 Bad Gateway", service(7006)},
		}},
		{"with flags", func(c *dataplane.Config) { c.OpaquePorts, c.SkipPorts = []uint16{7001}, []uint16{7004} }, []want{
			{"10.96.0.1:7001", "service|" + words, service(7001)},
			// A list takes the place of the default one.
			{"10.96.0.1:6379", "HTTP/1.1 502 Bad Gateway", service(6379)},
			{"10.0.0.1:7004", "host|" + words, ""},
		}},
	} {
		t.Run(run.name, func(t *testing.T) {
			logged, line := accessLog(t)
			r := start(t, addr, func(c *dataplane.Config) { c.OutboundAddress = ":15001" }, run.change, logged)
			for n, w := range run.want {
				c := from127(t, w.to)
				_, _ = io.WriteString(c, words)
				got, err := io.ReadAll(c)
				_ = c.Close()
				if err != nil || !strings.HasPrefix(string(got), w.answer) {
					t.Errorf("%s: %q, %v", w.to, got, err)
				}
				raw := !strings.HasPrefix(w.answer, "HTTP")
				if l := line(n + 1); l.Cluster != w.cluster || (l.Protocol == "tcp") != raw || (l.Reason == "none") != raw || l.Client != c.LocalAddr().String() {
					t.Errorf("%s: logged %+v", w.to, l)
				}
			}
			r.end()
		})
	}
}

// TestCapturedAccessLog: a line says where a captured connection went, and how.
func TestCapturedAccessLog(t *testing.T) {
	if !inNamespace(t, redirects+toHost) {
		return
	}
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	control.set(echo, a)
	control.alias("10.96.0.1:80", echo)
	named(t, "10.0.0.1:7777", "host")
	logged, line := accessLog(t)
	start(t, addr, func(c *dataplane.Config) { c.OutboundAddress, c.Limits.HeaderCount = ":15001", 5 }, logged)
	say := func(to, text string) string {
		t.Helper()
		c := from127(t, to)
		_, _ = io.WriteString(c, text)
		got, err := io.ReadAll(c)
		_ = c.Close()
		if err != nil {
			t.Errorf("%s: %v", to, err)
		}
		return string(got)
	}
	if got := say("10.96.0.1:80", words); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("%q", got)
	}
	if l := line(1); l.Protocol != "HTTP/1.1" || l.Cluster != echo || l.Status != 200 || l.Reason != "none" || len(l.Attempts) != 1 || l.Attempts[0].Endpoint != a {
		t.Errorf("service: %+v", l)
	}
	if got := say("10.0.0.1:7777", "hello"); got != "host|hello" {
		t.Errorf("%q", got)
	}
	if l := line(2); l.Protocol != "tcp" || l.Cluster != "10.0.0.1:7777" || l.BytesReceived != 5 || l.BytesSent != 10 || len(l.Attempts) != 1 || l.Attempts[0].Endpoint != "10.0.0.1:7777" {
		t.Errorf("passed: %+v", l)
	}
	if got := say("10.96.0.1:80", "GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\nA: 2\r\nA: 3\r\nA: 4\r\nA: 5\r\nA: 6\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 431") || !strings.Contains(got, "reason=header_limit") {
		t.Errorf("%q", got)
	}
	if l := line(3); l.Cluster != "" || l.Status != 431 || l.Reason != "header_limit" {
		t.Errorf("too many fields: %+v", l)
	}
	// The endpoint's reset, and what it looked like.
	const raw = "raw.default.svc.cluster.local:7778"
	control.set(raw, tcpServer(t, "127.0.0.1:0", func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
	}))
	control.alias("10.96.0.1:7778", raw)
	c := from127(t, "10.96.0.1:7778")
	_, _ = io.WriteString(c, "x")
	if _, err := io.ReadAll(c); err == nil {
		t.Error("a reset looked like a clean end")
	}
	if l := line(4); l.Cluster != raw || l.Reason != "reset_before_headers" || !strings.Contains(l.Error, "connection reset by peer") {
		t.Errorf("reset: %+v", l)
	}
}

// holding is an HTTP server that answers /hold when it is released; begun gets each such request.
func holding(t *testing.T) (address string, begun chan struct{}, release func()) {
	t.Helper()
	begun, released := make(chan struct{}, 1), make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/hold" {
			begun <- struct{}{}
			select {
			case <-released:
			case <-q.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "held")
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String(), begun, func() { close(released) }
}

// TestCapturedDrain: a captured connection takes part in a drain: HTTP is told
// with its next response, and bytes are cut when the drain time is over.
func TestCapturedDrain(t *testing.T) {
	if !inNamespace(t, redirects) {
		return
	}
	control, addr := newControl(t)
	up, begun, release := holding(t)
	control.set(echo, up)
	control.alias("10.96.0.1:80", echo)
	const raw = "raw.default.svc.cluster.local:7778"
	control.set(raw, tcpServer(t, "127.0.0.1:0", func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
	control.alias("10.96.0.1:7778", raw)
	logged, line := accessLog(t)
	const drain = 3 * time.Second
	r := start(t, addr, func(c *dataplane.Config) { c.OutboundAddress, c.DrainTime = ":15001", drain }, logged)
	bytes := dial(t, "10.96.0.1:7778")
	echoed := func() error {
		if _, err := bytes.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(bytes, make([]byte, 1))
		return err
	}
	if err := echoed(); err != nil {
		t.Fatal(err)
	}
	web, idle := dial(t, "10.96.0.1:80"), dial(t, "10.96.0.1:80")
	_, _ = io.WriteString(idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	before, err := http.ReadResponse(bufio.NewReader(idle), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, before.Body)
	_, _ = io.WriteString(web, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
	<-begun
	began := time.Now()
	r.stop()
	testwait.Until(t, "draining", func() bool { status, _ := r.admin(http.MethodGet, "/ready"); return status == 503 })
	// An idle connection ends a second after it was told; the other one has been told by then.
	if b, err := io.ReadAll(idle); err != nil || len(b) > 0 {
		t.Errorf("idle: %q, %v", b, err)
	}
	release()
	resp, err := http.ReadResponse(bufio.NewReader(web), nil)
	if err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("HTTP: %+v, %v", resp, err)
	}
	_ = resp.Body.Close()
	if err := echoed(); err != nil {
		t.Errorf("bytes, while it drains: %v", err)
	}
	if b, err := io.ReadAll(bytes); err == nil || len(b) > 0 {
		t.Errorf("bytes, when the drain time is over: %q, %v", b, err)
	}
	if took := time.Since(began); took < drain-100*time.Millisecond {
		t.Errorf("cut after %v", took)
	}
	if l := line(3); l.Cluster != raw || l.Reason != "draining" || l.BytesReceived != 2 {
		t.Errorf("logged %+v", l)
	}
}

// TestCapturedAge: so it does in the greatest age of connections.
func TestCapturedAge(t *testing.T) {
	if !inNamespace(t, redirects) {
		return
	}
	control, addr := newControl(t)
	up, begun, _ := holding(t)
	control.set(echo, up)
	control.alias("10.96.0.1:80", echo)
	start(t, addr, func(c *dataplane.Config) {
		c.OutboundAddress, c.MaxConnectionAge, c.MaxConnectionAgeGrace = ":15001", 300*time.Millisecond, 300*time.Millisecond
	})
	c := dial(t, "10.96.0.1:80")
	_, _ = io.WriteString(c, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
	<-begun
	got, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 503") || !strings.Contains(string(got), "reason=connection_age") {
		t.Errorf("%q, %v", got, err)
	}
}

// TestFailFastTimes: requests wait for an application that does not listen for
// 1 s, and for a service without a usable endpoint for 3 s, unless it is set otherwise.
func TestFailFastTimes(t *testing.T) {
	rules := redirects + strings.ReplaceAll(toHost, ":15001", ":15006")
	if !inNamespace(t, rules) {
		return
	}
	control, addr := newControl(t)
	control.set(echo, "127.0.0.1:1")
	control.alias("10.96.0.1:80", echo)
	start(t, addr, func(c *dataplane.Config) {
		c.OutboundAddress, c.InboundAddress, c.FailFast = ":15001", ":15006", 0
	})
	took := func(to string) time.Duration {
		t.Helper()
		began := time.Now()
		c := from127(t, to)
		_, _ = io.WriteString(c, words)
		if got, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 503") || !strings.Contains(string(got), "reason=all_ejected") {
			t.Errorf("%s: %q, %v", to, got, err)
		}
		return time.Since(began)
	}
	if d := took("10.0.0.1:8081"); d < time.Second || d >= 3*time.Second {
		t.Errorf("inbound: %v", d)
	}
	if d := took("10.96.0.1:80"); d < 3*time.Second {
		t.Errorf("outbound: %v", d)
	}
}

// TestBackPressure: a side that does not read holds the other one up, both ways
// and for bytes as for HTTP; when it reads again nothing is missing.
func TestBackPressure(t *testing.T) {
	if !inNamespace(t, redirects) {
		return
	}
	// What the kernel keeps on the way: a sending and a receiving buffer for each
	// of two connections, 4 and 6 MiB by default.
	const total, kept = 128 << 20, 32 << 20
	control, addr := newControl(t)
	start(t, addr, func(c *dataplane.Config) { c.OutboundAddress = ":15001" })
	for port, c := range map[int]struct {
		name       string
		toEndpoint bool
		head       string
	}{
		7001: {"bytes to the client", false, ""},
		7002: {"bytes to the endpoint", true, ""},
		7003: {"response", false, "HTTP/1.1 200 OK\r\nContent-Length: " + fmt.Sprint(total) + "\r\n\r\n"},
		7004: {"request", true, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + fmt.Sprint(total) + "\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			peer := make(chan *net.TCPConn, 1)
			over := make(chan struct{})
			defer close(over)
			name := fmt.Sprintf("s%d.default.svc.cluster.local:%d", port, port)
			control.set(name, tcpServer(t, "127.0.0.1:0", func(c *net.TCPConn) { peer <- c; <-over }))
			control.alias(fmt.Sprintf("10.96.0.1:%d", port), name)
			writer, reader := dial(t, fmt.Sprintf("10.96.0.1:%d", port)), (*net.TCPConn)(nil)
			if c.toEndpoint {
				_, _ = io.WriteString(writer, c.head)
				reader = <-peer
			} else {
				if c.head != "" {
					_, _ = io.WriteString(writer, words)
				}
				reader, writer = writer, <-peer
				_, _ = io.WriteString(writer, c.head)
			}
			_ = writer.SetDeadline(time.Now().Add(time.Minute))
			_ = reader.SetDeadline(time.Now().Add(time.Minute))
			var wrote atomic.Int64
			done := make(chan error, 1)
			go func() {
				b := make([]byte, 64<<10)
				for wrote.Load() < total {
					n, err := writer.Write(b)
					if wrote.Add(int64(n)); err != nil {
						done <- err
						return
					}
				}
				_ = writer.CloseWrite()
				done <- nil
			}()
			before, same := int64(0), 0
			testwait.Until(t, "it comes to rest", func() bool {
				now := wrote.Load()
				if same++; now != before || now == 0 {
					before, same = now, 0
				}
				return same > 30
			})
			if before > kept {
				t.Errorf("%d bytes were taken that nobody has read", before)
			}
			n, err := io.Copy(io.Discard, io.LimitReader(reader, total))
			if werr := <-done; err != nil || werr != nil || n != total {
				t.Errorf("read %d of %d: %v, %v", n, total, err, werr)
			}
		})
	}
}

// TestDeadPeers: the kernel tells the proxy of a peer that went without a word,
// and the proxy tells the other side: bytes that are not acknowledged, and
// keepalives that are not answered.
func TestDeadPeers(t *testing.T) {
	t.Parallel()
	if !inNamespace(t, redirects+`
table inet cut {
 set dead { type inet_service; }
 chain out {
  type filter hook output priority 0
  tcp dport @dead drop
  tcp sport @dead drop
 }
}`) {
		return
	}
	control, addr := newControl(t)
	logged, line := accessLog(t)
	start(t, addr, func(c *dataplane.Config) { c.OutboundAddress = ":15001" }, logged)
	ended := make(chan string, 2)
	waits := func(t *testing.T, port int, endpoint string, client *net.TCPAddr) *net.TCPConn {
		t.Helper()
		name := fmt.Sprintf("s%d.default.svc.cluster.local:%d", port, port)
		control.set(name, tcpServer(t, endpoint, func(c *net.TCPConn) {
			_, _ = io.Copy(c, c)
			ended <- name
		}))
		control.alias(fmt.Sprintf("10.96.0.1:%d", port), name)
		c, err := (&net.Dialer{LocalAddr: client, KeepAlive: -1}).DialContext(t.Context(), "tcp", fmt.Sprintf("10.96.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(80 * time.Second))
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return c.(*net.TCPConn)
	}
	// One whose endpoint dies, and one whose client does.
	first := waits(t, 7001, "127.0.0.1:7701", nil)
	waits(t, 7002, "127.0.0.1:7702", &net.TCPAddr{Port: 7802})
	command(t, "add element inet cut dead { 7701, 7802 }", "nft", "-f", "-")
	began := time.Now()
	if _, err := first.Write([]byte("y")); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the endpoint is dead: %v after %v", err, time.Since(began))
	}
	select {
	case <-ended:
	case <-t.Context().Done():
	case <-waitFor(t.Context(), 60*time.Second):
		t.Error("the client is dead, and the endpoint does not know")
	}
	reasons := map[string]string{}
	for n := range 2 {
		l := line(n + 1)
		if !strings.Contains(l.Error, "timed out") {
			t.Errorf("logged %+v", l)
		}
		reasons[l.Cluster] = l.Reason
	}
	if reasons["s7001.default.svc.cluster.local:7001"] != "reset_mid_body" || reasons["s7002.default.svc.cluster.local:7002"] != "client_gone" {
		t.Errorf("reasons %v", reasons)
	}
}

// waitFor is closed after d.
func waitFor(ctx context.Context, d time.Duration) <-chan struct{} {
	ctx, cancel := context.WithTimeout(ctx, d)
	context.AfterFunc(ctx, cancel)
	return ctx.Done()
}
