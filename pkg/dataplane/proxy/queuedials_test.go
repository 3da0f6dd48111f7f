package proxy_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// TestQueueDialsWithMeasure: an endpoint whose connection is full, and that closes every further one at once, is dialled
// again for those who wait, but not over and over.
func TestQueueDialsWithMeasure(t *testing.T) {
	both(t, func(t *testing.T, grpc bool) {
		r := newRig(t)
		const some = 8
		var dials atomic.Int64
		at := make(chan time.Time, 1000)
		let := make(chan struct{})
		addr := acceptor(t, func(c net.Conn) {
			at <- time.Now()
			if dials.Add(1) > 1 {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
			f := http2.NewFramer(c, c)
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					return
				}
				if h, ok := frame.(*http2.HeadersFrame); ok {
					<-let
					_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true})
				}
			}
		})
		r.put2(true, oneConnection, addr)
		var a asked
		r.askAll(&a, t.Context(), 1, grpc)
		testwait.Until(t, "it is full", func() bool { return r.set.Status()[0].Endpoints[0].Total.Issued == 1 })
		r.askAll(&a, t.Context(), 3, grpc)
		r.waiting(3)
		r.put2(true, func(c *discovery.Cluster) { c.Breakers[0].Connections = 2 }, addr)
		testwait.Until(t, "it is dialled again", func() bool { return dials.Load() > some })
		close(let)
		a.Wait()
		var all []time.Time
		for range some {
			all = append(all, <-at)
		}
		// As many may come at once as wait, and then there is a pause, of 100 ms at least. Some of that may be lost here.
		if took := all[some-1].Sub(all[1]); took < 50*time.Millisecond {
			t.Errorf("%d connections that came to nothing within %s", some-1, took)
		}
		for _, got := range a.all {
			if got.proxyStatus != "" {
				t.Errorf("%+v", got)
			}
		}
		r.waiting(0)
	})
}

// TestConnectionOfNoUse: an endpoint that greets and lets the connection go before it carried anything, as one does
// that winds up, is as good as one that cannot be reached: it is not dialled over and over, and others are asked.
func TestConnectionOfNoUse(t *testing.T) {
	for name, greet := range map[string]func(f *http2.Framer){
		"goes away": func(f *http2.Framer) {
			_ = f.WriteSettings()
			_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
		},
		"allows no stream": func(f *http2.Framer) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, grpc bool) {
				r := newRig(t)
				var dials atomic.Int64
				addr := acceptor(t, func(c net.Conn) {
					dials.Add(1)
					_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
					var b bytes.Buffer
					greet(http2.NewFramer(&b, nil))
					_, _ = c.Write(b.Bytes())
					// Of what comes something is read, for the greeting not to be lost by a reset.
					_, _ = c.Read(make([]byte, 1<<10))
				})
				r.put2(true, nil, addr)
				if got := r.ask(t.Context(), grpc, echo); !strings.Contains(got.proxyStatus, "reason="+string(upstream.ConnectFailed)) && !strings.Contains(got.proxyStatus, "reason="+string(upstream.AllEjected)) {
					t.Errorf("%+v", got)
				}
				if n := dials.Load(); n > 100 {
					t.Errorf("%d dials for one request", n)
				}
				r.put2(true, nil, addr, newBackend(t, "other", nil).addr)
				for range 5 {
					if got := r.ask(t.Context(), grpc, echo); got.line != "other" {
						t.Errorf("with another one: %+v", got)
					}
				}
			})
		})
	}
}
