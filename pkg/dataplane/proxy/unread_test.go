package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// flooding sends without end on each connection; stuck waits until nothing more is taken.
func flooding(t *testing.T) (addr string, stuck func()) {
	t.Helper()
	var sent atomic.Int64
	addr = acceptor(t, func(c net.Conn) {
		page := make([]byte, 64<<10)
		for {
			if _, err := c.Write(page); err != nil {
				return
			}
			sent.Add(1)
		}
	})
	return addr, func() {
		last, since := int64(0), time.Now()
		testwait.Until(t, "nothing more is taken", func() bool {
			if n := sent.Load(); n != last {
				last, since = n, time.Now()
			}
			return last > 0 && time.Since(since) > 500*time.Millisecond
		})
	}
}

// unreadTunnels are connections through the proxy of which nothing more is read.
var unreadTunnels = map[string]func(r *rig){
	"TCP": func(r *rig) {
		c := r.dial(r.serveTCP(echo))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			r.t.Fatal(err)
		}
	},
	"CONNECT over HTTP/1.1": func(r *rig) {
		c := r.dial(r.addr)
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", echo, echo)
		if resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect}); err != nil || resp.StatusCode != http.StatusOK {
			r.t.Fatal(resp, err)
		}
	},
	"CONNECT over HTTP/2": func(r *rig) {
		pr, pw := io.Pipe()
		r.t.Cleanup(func() { _ = pw.Close() })
		q, err := http.NewRequestWithContext(r.t.Context(), http.MethodConnect, "http://"+r.addr, pr)
		if err != nil {
			r.t.Fatal(err)
		}
		q.Host = echo
		tr := transport(true)
		r.t.Cleanup(tr.CloseIdleConnections)
		resp, err := tr.RoundTrip(q)
		if err != nil || resp.StatusCode != http.StatusOK {
			r.t.Fatal(resp, err)
		}
		r.t.Cleanup(func() { _ = resp.Body.Close() })
	},
}

// TestEndOfUnreadTunnels: what closes tunnels closes those too whose client does not read.
func TestEndOfUnreadTunnels(t *testing.T) {
	for name, open := range unreadTunnels {
		for how, end := range map[string]func(r *rig){
			"ejection": (*rig).eject,
			"removal":  func(r *rig) { r.put() },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				r := newRig(t)
				addr, stuck := flooding(t)
				r.putCluster(&discovery.Cluster{CloseOnEjection: true}, addr)
				open(r)
				stuck()
				end(r)
				testwait.Until(t, "it has ended", func() bool { return r.tracker.Active() == 0 })
			})
		}
	}
}
