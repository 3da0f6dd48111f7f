package proxy_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

func oneConnection(c *discovery.Cluster) { c.Breakers[0].Connections = 1 }

// A connection that winds up takes no more streams, but that is not for their limit.
func TestNoStreamLimitAfterGoAway(t *testing.T) {
	r := newRig(t)
	told := make(chan struct{})
	r.put2(true, oneConnection, frameServer(t, nil, func(f *http2.Framer, h *http2.HeadersFrame, _ net.Conn) {
		_ = f.WriteGoAway(h.StreamID, http2.ErrCodeNo, nil)
		// What answers a ping has read the GOAWAY before it.
		_ = f.WritePing(false, [8]byte{1})
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if p, ok := frame.(*http2.PingFrame); ok && p.IsAck() && p.Data == [8]byte{1} {
				break
			}
		}
		close(told)
	}))
	r.occupy(1, true)
	<-told
	if got := r.ask(t.Context(), true, echo); !strings.Contains(got.proxyStatus, "reason="+string(upstream.BreakerConnections)) {
		t.Errorf("%+v", got)
	}
}

// Where no further connection may be had, another endpoint may have one with room.
func TestConnectionOfAnotherEndpoint(t *testing.T) {
	r := newRig(t)
	holds := newBackend(t, "a", func(_ http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Grpc-Timeout") == "" {
			<-q.Context().Done()
		}
	})
	other := held(t)
	r.put2(true, oneConnection, holds.addr)
	r.occupy(1, true)
	for range 8 {
		r.put2(true, oneConnection, holds.addr)
		r.put2(true, oneConnection, holds.addr, other.addr)
		if got := r.ask(t.Context(), true, echo, deadlineOf(20*time.Second)); got.proxyStatus != "" || got.status != http.StatusOK {
			t.Fatalf("%+v", got)
		}
	}
}
