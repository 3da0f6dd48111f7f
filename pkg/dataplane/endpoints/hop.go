package endpoints

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http2"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// hop is all connections to one endpoint: the upstream's own, and those of
// the relay, which the upstream dials and has on its books.
type hop struct {
	upstream.Upstream
	// One of them is nil, by what the endpoint speaks.
	http1 *relay.Pool
	http2 *http2.Pool
}

// answerLimits bound the heads of responses: an endpoint may say more than a client.
var answerLimits = http1.Limits{Bytes: 256 << 10, Fields: 1000}

// An HTTP/2 endpoint that is silent for pingAfter is asked whether it is there, and has pingTimeout to say so.
const pingAfter, pingTimeout = 15 * time.Second, 5 * time.Second

func (s *Set) connect(dc *discovery.Cluster, e mesh.Endpoint, g *gate) *hop {
	h := &hop{Upstream: s.cfg.NewUpstream(upstream.Config{Address: e.Address, ConnectTimeout: dc.ConnectTimeout, Gate: g})}
	if dc.HTTP2 {
		h.http2 = http2.NewPool(http2.PoolConfig{
			Address: e.Address, Dial: h.dial, ConnectTimeout: dc.ConnectTimeout, Queue: (*pending)(g.cluster),
			Conn: http2.Config{
				MaxHeaderBytes: answerLimits.Bytes, MaxHeaderFields: answerLimits.Fields, PingAfter: pingAfter, PingTimeout: pingTimeout,
				Panicked: s.panicked(e.Address),
			},
		})
	} else {
		h.http1 = relay.NewPool(relay.PoolConfig{Address: e.Address, Dial: h.dial, Limits: answerLimits})
	}
	return h
}

// panicked gives what tells of a panic on a connection to addr.
func (s *Set) panicked(addr netip.AddrPort) func(v any, stack []byte) {
	if s.cfg.Panicked == nil {
		return nil
	}
	return func(v any, stack []byte) {
		s.cfg.Panicked()
		s.log.Error("a defect of the proxy ended a connection", "endpoint", addr, "panic", v, "stack", string(stack))
	}
}

func (h *hop) dial(ctx context.Context) (net.Conn, error) {
	c, err := h.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// CloseIdle closes the connections that carry nothing now.
func (h *hop) CloseIdle() {
	if h.http2 != nil {
		h.http2.CloseIdle()
	}
	if h.http1 != nil {
		h.http1.CloseIdle()
	}
}

// CloseOneIdle closes a connection that carries nothing now, whose place is free then; false where there is none.
func (h *hop) CloseOneIdle() bool {
	if h.http2 != nil {
		return h.http2.CloseOneIdle()
	}
	return h.http1.CloseOneIdle()
}

// Retire implements upstream.Upstream.
func (h *hop) Retire(drain time.Duration) {
	// First, so that the upstream finds only what is in use.
	if h.http2 != nil {
		h.http2.Retire(drain)
	}
	if h.http1 != nil {
		h.http1.Retire(drain)
	}
	h.Upstream.Retire(drain)
}

// Close implements upstream.Upstream.
func (h *hop) Close() {
	if h.http2 != nil {
		h.http2.Close()
	}
	if h.http1 != nil {
		h.http1.Close()
	}
	h.Upstream.Close()
}
