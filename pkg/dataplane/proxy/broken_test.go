package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// resets gives each connection's first line to serve, and resets it then.
func resets(t *testing.T, serve func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	return acceptor(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		serve(c, r)
		_ = c.(*net.TCPConn).SetLinger(0)
	})
}

// A tunnel that its endpoint resets says so in the log, since nothing else can;
// so does one whose client does.
func TestLogOfBrokenTunnels(t *testing.T) {
	silent := func(_ net.Conn, r *bufio.Reader) { _, _ = r.ReadString('\n') }
	speaking := func(c net.Conn, r *bufio.Reader) {
		_, _ = io.WriteString(c, "hello\n")
		_, _ = r.ReadString('\n')
	}
	upgrading := func(c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		}
		_, _ = r.ReadString('\n')
	}
	waiting := func(_ net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) }
	connect := "CONNECT " + echo + " HTTP/1.1\r\nHost: " + echo + "\r\n\r\n"
	upgrade := "GET / HTTP/1.1\r\nHost: " + echo + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	for _, c := range []struct {
		name   string
		server func(net.Conn, *bufio.Reader)
		// head begins the tunnel; "" is opaque TCP.
		head string
		// leave: the client resets the tunnel.
		leave  bool
		status int
		want   upstream.Reason
	}{
		{"TCP before anything came", silent, "", false, 0, upstream.ResetBeforeHeaders},
		{"TCP after something came", speaking, "", false, 0, upstream.ResetMidBody},
		{"TCP by the client", waiting, "", true, 0, upstream.ClientGone},
		{"CONNECT before anything came", silent, connect, false, 200, upstream.ResetBeforeHeaders},
		{"CONNECT after something came", speaking, connect, false, 200, upstream.ResetMidBody},
		{"CONNECT by the client", waiting, connect, true, 200, upstream.ClientGone},
		{"WebSocket", upgrading, upgrade, false, 101, upstream.ResetMidBody},
		{"WebSocket by the client", waitingUpgrade, upgrade, true, 101, upstream.ClientGone},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			var out logBuffer
			r.logTo(&out)
			b := resets(t, c.server)
			r.put(b)
			address := r.addr
			if c.head == "" {
				address = r.serveTCP(echo)
			}
			conn := r.dial(address)
			reader := bufio.NewReader(conn)
			if c.head != "" {
				_, _ = io.WriteString(conn, c.head)
				if _, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect}); err != nil {
					t.Fatal(err)
				}
			}
			_, _ = io.WriteString(conn, "go on\n")
			if c.leave {
				testwait.Until(t, "the endpoint has it", func() bool { return r.set.Status()[0].Endpoints[0].Total.Issued == 1 })
				_ = conn.SetLinger(0)
				_ = conn.Close()
			} else {
				_, _ = io.Copy(io.Discard, reader)
			}
			n := out.next(t, 1)
			if n.Reason != string(c.want) || n.Layer != string(c.want.Layer()) || n.Status != c.status {
				t.Errorf("%+v", n)
			}
		})
	}
}

func waitingUpgrade(c net.Conn, r *bufio.Reader) {
	if _, err := http.ReadRequest(r); err == nil {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	}
	_, _ = io.Copy(io.Discard, r)
}

// What an endpoint's reset cut off never looks like a clean end, though the
// error of a reset is given only once, and here most often to the direction that writes.
func TestResetIsNoCleanEnd(t *testing.T) {
	r := newRig(t)
	r.put(resets(t, func(_ net.Conn, r *bufio.Reader) { _, _ = r.ReadString('\n') }))
	address := r.serveTCP(echo)
	const n = 3000
	clean := 0
	for range n {
		c := r.dial(address)
		var err error
		for i := 0; i < 20 && err == nil; i++ {
			_, err = io.WriteString(c, "more\n")
		}
		// Where writing had the error, reading would not have it here either.
		if err == nil {
			if _, err = io.Copy(io.Discard, c); err == nil {
				clean++
			}
		}
		_ = c.Close()
	}
	if clean > 0 {
		t.Errorf("%d of %d resets looked like a clean end", clean, n)
	}
}

// An endpoint whose answers break off in their bodies is ejected like one that answers badly.
func TestBrokenOffAnswersEject(t *testing.T) {
	r := newRig(t)
	o := discovery.DefaultOutlier
	r.put2(false, func(c *discovery.Cluster) { c.Outlier = &o }, hungUp(t, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"))
	for range o.Consecutive5xx {
		if got := r.ask(t.Context(), false, echo); got.status != http.StatusOK || !got.brokenOff {
			t.Fatalf("%+v", got)
		}
	}
	testwait.Until(t, "ejected", func() bool {
		e := r.set.Status()[0].Endpoints[0]
		return e.Doubted && e.Reason == "consecutive_5xx"
	})
}
