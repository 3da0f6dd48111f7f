package endpoints

import (
	"context"
	"net"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// hop is all connections to one endpoint: the upstream's own, and those of
// the relay of HTTP/1.1, which the upstream dials and has on its books.
type hop struct {
	upstream.Upstream
	// http1 is nil where the endpoint speaks HTTP/2.
	http1 *relay.Pool
}

// answerLimits bound the heads of responses: an endpoint may say more than a client.
var answerLimits = http1.Limits{Bytes: 256 << 10, Fields: 1000}

func (s *Set) connect(dc *discovery.Cluster, e mesh.Endpoint, g upstream.Gate) *hop {
	h := &hop{Upstream: s.cfg.NewUpstream(upstream.Config{Address: e.Address, HTTP2: dc.HTTP2, ConnectTimeout: dc.ConnectTimeout, Gate: g})}
	if !dc.HTTP2 {
		h.http1 = relay.NewPool(relay.PoolConfig{Address: e.Address, Dial: h.dial, Limits: answerLimits})
	}
	return h
}

func (h *hop) dial(ctx context.Context) (net.Conn, error) {
	c, err := h.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// CloseIdle implements upstream.Upstream.
func (h *hop) CloseIdle() {
	if h.http1 != nil {
		h.http1.CloseIdle()
	}
	h.Upstream.CloseIdle()
}

// Retire implements upstream.Upstream.
func (h *hop) Retire(drain time.Duration) {
	// First, so that the upstream finds only what is in use.
	if h.http1 != nil {
		h.http1.Retire(drain)
	}
	h.Upstream.Retire(drain)
}

// Close implements upstream.Upstream.
func (h *hop) Close() {
	if h.http1 != nil {
		h.http1.Close()
	}
	h.Upstream.Close()
}
