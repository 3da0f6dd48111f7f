package dataplane_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxyproto"
)

// limited is a data plane with small limits before one backend.
func limited(t *testing.T, change func(*dataplane.Config)) *running {
	t.Helper()
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	control.set(echo, a)
	return start(t, addr, change)
}

// counts waits for a line of the stats: connections are counted after their
// client has seen the end of them.
func (r *running) counts(line string) {
	r.t.Helper()
	testwait.Until(r.t, "stats with "+line, func() bool {
		_, stats := r.admin(http.MethodGet, "/stats")
		return strings.Contains(stats, line)
	})
}

func (r *running) reached(reason string) {
	r.t.Helper()
	r.counts(`freshmesh_limits_reached_total{reason="` + reason + `"}`)
}

func TestConnectionLimit(t *testing.T) {
	r := limited(t, func(c *dataplane.Config) { c.Limits.Connections = 1 })
	first := dial(t, r.addr["outbound"])
	ask := func(c net.Conn) string {
		_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", echo)
		b := make([]byte, 4096)
		n, _ := c.Read(b)
		return string(b[:n])
	}
	if got := ask(first); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Fatalf("first: %q", got)
	}
	another := func() string {
		c, err := net.Dial("tcp", r.addr["outbound"])
		if errors.Is(err, syscall.ECONNRESET) {
			return "" // the reset came before the dial had returned
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		return ask(c)
	}
	if got := another(); got != "" {
		t.Errorf("over the limit: %q", got)
	}
	r.reached("connection_limit")
	if got := ask(first); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("the one that was there: %q", got)
	}
	_ = first.Close()
	testwait.Until(t, "room again", func() bool { return strings.HasPrefix(another(), "HTTP/1.1 200") })
}

func TestHeaderLimits(t *testing.T) {
	r := limited(t, func(c *dataplane.Config) { c.Limits.HeaderCount, c.Limits.HeaderTime = 3, 300*time.Millisecond })
	c := dial(t, r.addr["outbound"])
	_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nA: 1\r\nA: 2\r\nB: 3\r\nC: 4\r\n\r\n", echo)
	got, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 431") || !strings.Contains(string(got), "reason=header_limit") {
		t.Errorf("%q, %v", got, err)
	}
	r.reached("header_limit")
	slow := dial(t, r.addr["outbound"])
	_, _ = io.WriteString(slow, "GET / HTTP/1.1\r\nHost:")
	if _, err := io.ReadAll(slow); err != nil {
		t.Errorf("slow header: %v", err)
	}
	r.reached("header_timeout")
}

func TestBodyTimeout(t *testing.T) {
	control, addr := newControl(t)
	up := tcpServer(t, "127.0.0.1:0", func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	control.set(echo, up)
	r := start(t, addr, func(c *dataplane.Config) { c.Limits.BodyIdle = 200 * time.Millisecond })
	c := dial(t, r.addr["outbound"])
	_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 10\r\n\r\nabc", echo)
	got, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(got), "HTTP/1.1 408") || !strings.Contains(string(got), "reason=body_timeout") {
		t.Errorf("%q", got)
	}
	r.reached("body_timeout")
}

func TestSlowReader(t *testing.T) {
	control, addr := newControl(t)
	up := tcpServer(t, "127.0.0.1:0", func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
		b := make([]byte, 1<<20)
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	control.set(echo, up)
	r := start(t, addr, func(c *dataplane.Config) { c.Limits.WriteIdle = 300 * time.Millisecond })
	c := dial(t, r.addr["outbound"])
	_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", echo)
	r.reached("slow_reader")
}

func TestOverload(t *testing.T) {
	r := limited(t, func(c *dataplane.Config) { c.Limits.Memory = 1 << 20 })
	testwait.Until(t, "shed", func() bool {
		status, h, _ := r.get(echo)
		return status == 503 && strings.Contains(h.Get("Proxy-Status"), "reason=overload")
	})
	r.reached("overload")
}

func TestProxyHeaderIn(t *testing.T) {
	control, addr := newControl(t)
	control.set(echo, greeter(t, "127.0.0.1:0"))
	r := start(t, addr, func(c *dataplane.Config) {
		c.Listens = []dataplane.Listen{{Address: "127.0.0.1:0", Cluster: echo, ProxyHeader: true}}
	})
	for _, with := range []bool{true, false} {
		c := dial(t, r.addr[echo])
		h := proxyproto.Header{Source: netip.MustParseAddrPort("10.1.1.1:5"), Destination: netip.MustParseAddrPort("10.1.1.2:6")}
		if with {
			_, _ = c.Write(h.Append(nil))
		} else {
			_, _ = io.WriteString(c, "this is no header of the PROXY protocol")
		}
		b := make([]byte, 64)
		n, err := c.Read(b)
		if ok := err == nil && strings.Contains(string(b[:n]), "greeting"); ok != with {
			t.Errorf("with %v: %q, %v", with, b[:n], err)
		}
	}
	r.counts(`reason="bad_proxy_header"}: 1`)
}

func TestTCPIdle(t *testing.T) {
	control, addr := newControl(t)
	control.set(echo, tcpServer(t, "127.0.0.1:0", func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
	r := start(t, addr, func(c *dataplane.Config) {
		c.Limits.TCPIdle = 300 * time.Millisecond
		c.Listens = []dataplane.Listen{{Address: "127.0.0.1:0", Cluster: echo}}
	})
	c := dial(t, r.addr[echo])
	_, _ = c.Write([]byte("x"))
	began := time.Now()
	b, err := io.ReadAll(c)
	if string(b) != "x" || err == nil || os.IsTimeout(err) || time.Since(began) < 250*time.Millisecond {
		t.Errorf("%q, %v after %v", b, err, time.Since(began))
	}
	r.reached("idle_timeout")
}
