//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	relay2 "github.com/freshmesh/freshmesh/pkg/dataplane/http2"
	heads "github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// stations2 are the endpoints of our HTTP/2 relay with what a balancer keeps.
type stations2 struct {
	all      []station2
	requests prometheus.Counter
	failures prometheus.Counter
	duration prometheus.Observer
	free     sync.Pool
}

type station2 struct {
	pool   *relay2.Pool
	active atomic.Int64
}

// request2 is one request on its way.
type request2 struct {
	*stations2
	to    *station2
	began time.Time
}

// Request implements relay2.Handler: least request of two choices.
func (s *stations2) Request(k relay2.Ticket, _ *heads.Request) (relay2.Decider, relay2.Decision) {
	x := s.free.Get().(*request2)
	x.began = time.Now()
	k.SetDeadline(x.began.Add(15 * time.Second))
	a, b := &s.all[rand.IntN(len(s.all))], &s.all[rand.IntN(len(s.all))]
	if b.active.Load() < a.active.Load() {
		a = b
	}
	x.to = a
	a.active.Add(1)
	return x, relay2.Decision{To: a.pool}
}

func (x *request2) Sent() *upstream.Error                          { return nil }
func (x *request2) Response(*heads.Response, bool) relay2.Decision { return relay2.Decision{} }
func (x *request2) Trailers([]heads.Field) relay2.Decision         { return relay2.Decision{} }
func (x *request2) Failed(*upstream.Error, bool) relay2.Decision   { return relay2.Decision{} }

func (x *request2) Expired() (*upstream.Error, bool) {
	return &upstream.Error{Reason: upstream.Deadline}, false
}

// Ended implements relay2.Decider.
func (x *request2) Ended(o relay2.Outcome) {
	x.to.active.Add(-1)
	if o.Err != nil {
		x.failures.Inc()
	}
	x.requests.Inc()
	x.duration.Observe(time.Since(x.began).Seconds())
	x.to = nil
	x.free.Put(x)
}

func serveRelay2(ctx context.Context, l net.Listener, endpoints []string) error {
	requests, duration := metrics()
	s := &stations2{
		all: make([]station2, len(endpoints)), requests: requests.WithLabelValues("out", "2xx"),
		failures: requests.WithLabelValues("out", "5xx"), duration: duration.WithLabelValues("out"),
	}
	s.free.New = func() any { return &request2{stations2: s} }
	for i, e := range endpoints {
		at, err := netip.ParseAddrPort(e)
		if err != nil {
			return err
		}
		s.all[i].pool = relay2.NewPool(relay2.PoolConfig{Address: at})
	}
	return accept(l, func(c net.Conn) { _ = relay2.NewServer(c, nil, s, relay2.Config{}).Run(ctx) })
}
