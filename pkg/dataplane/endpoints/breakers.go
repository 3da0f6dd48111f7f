package endpoints

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Breaker is one kind of limit of a cluster.
type Breaker uint8

// The breakers, with Envoy's names for the limits.
const (
	// Connections are those open to the cluster's endpoints, whoever uses them.
	Connections Breaker = iota
	// Pending are requests that wait for a usable endpoint, or for a stream where no further connection may be had.
	Pending
	// Requests are those that have an endpoint, or wait for one.
	Requests
	// Retries are those requests among them that are retries.
	Retries
	breakers
)

// String gives "cx", "rq_pending", "rq" or "rq_retry", as in Envoy's circuit breaker statistics.
func (b Breaker) String() string {
	switch b {
	case Connections:
		return "cx"
	case Pending:
		return "rq_pending"
	case Requests:
		return "rq"
	case Retries:
		return "rq_retry"
	case breakers:
	}
	return "unknown"
}

// Reason is what a request is told that this breaker sheds.
func (b Breaker) Reason() upstream.Reason {
	switch b {
	case Connections:
		return upstream.BreakerConnections
	case Pending:
		return upstream.BreakerPending
	case Retries:
		return upstream.BreakerRetries
	case Requests, breakers:
	}
	return upstream.BreakerRequests
}

// gauge counts what is active, and what was shed since the start.
type gauge struct {
	active atomic.Int64
	shed   atomic.Uint64
}

// gauges are a cluster's, by priority; they outlive changes of the limits.
type gauges [discovery.Priorities][breakers]gauge

// take takes one place, and gives false when there is none.
func (g *gauge) take(limit uint64) bool {
	for {
		n := g.active.Load()
		if uint64(max(n, 0)) >= limit {
			return false
		}
		// Not counted and taken back: for that moment others would find a free place taken.
		if g.active.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// enter takes one place, and gives false when there is none: then it counts as shed.
func (g *gauge) enter(limit uint64) bool {
	ok := g.take(limit)
	if !ok {
		g.shed.Add(1)
	}
	return ok
}

func (g *gauge) leave() { g.active.Add(-1) }

func (c *Cluster) limit(p discovery.Priority, b Breaker) uint64 {
	l := c.Config().Limits(p)
	switch b {
	case Connections:
		return uint64(l.Connections)
	case Pending:
		return uint64(l.Pending)
	case Requests:
		return uint64(l.Requests)
	case Retries:
		active := c.gauges[p][Requests].active.Load()
		return max(uint64(l.Retries), uint64(l.RetryPercent*float64(max(active, 0))/100))
	case breakers:
	}
	return 0
}

// enter takes a place of a breaker, or gives the error of a request that is shed.
func (c *Cluster) enter(p discovery.Priority, b Breaker) error {
	limit := c.limit(p, b)
	if c.gauges[p][b].enter(limit) {
		return nil
	}
	return &upstream.Error{
		Reason: b.Reason(), Unsent: true, Unanswered: true,
		Err: c.atLimit(limit),
	}
}

// atLimit is what a request is told that a breaker sheds; which breaker, its reason says.
func (c *Cluster) atLimit(limit uint64) error {
	return fmt.Errorf("cluster %s is at its limit of %d", c.name, limit)
}

// BeginRetry asks the retry breaker for one more retry at this priority. With
// ok, release must be called once, when the attempt is over; without, the
// failure that was to be retried is the answer (reason BreakerRetries). The
// limit is Limits.Retries, or RetryPercent of the active requests if that is more.
func (c *Cluster) BeginRetry(p discovery.Priority) (release func(), ok bool) {
	g := &c.gauges[p][Retries]
	if !g.enter(c.limit(p, Retries)) {
		return func() {}, false
	}
	return g.leave, true
}

// BreakerStatus is a breaker at one moment. It is open when nothing more gets through.
type BreakerStatus struct {
	Priority      discovery.Priority
	Breaker       Breaker
	Active, Limit uint64
	// Shed counts since the cluster was first applied.
	Shed uint64
}

// Open tells whether the limit is reached.
func (b BreakerStatus) Open() bool { return b.Active >= b.Limit }

// Remaining is how much more gets through.
func (b BreakerStatus) Remaining() uint64 { return b.Limit - min(b.Active, b.Limit) }

// Breakers gives the cluster's breakers, the default priority's first, each in the order of the constants.
func (c *Cluster) Breakers() []BreakerStatus {
	all := make([]BreakerStatus, 0, int(discovery.Priorities)*int(breakers))
	for p := range discovery.Priorities {
		for b := range breakers {
			g := &c.gauges[p][b]
			all = append(all, BreakerStatus{
				Priority: p, Breaker: b, Active: uint64(max(g.active.Load(), 0)), Limit: c.limit(p, b), Shed: g.shed.Load(),
			})
		}
	}
	return all
}

// gate counts the connections of one endpoint for its cluster's breaker. It implements upstream.Gate.
type gate struct {
	cluster *Cluster
	totals  *totals
}

// Open takes a place, closing idle connections of the cluster for it if need be: those
// that one endpoint keeps for later must not shed the requests of another.
func (g *gate) Open() error {
	c := g.cluster
	breaker := &c.gauges[discovery.DefaultPriority][Connections]
	limit := c.limit(discovery.DefaultPriority, Connections)
	for !breaker.take(limit) {
		// Another one may have been first to the place.
		if !c.closeIdle() {
			breaker.shed.Add(1)
			return c.atLimit(limit)
		}
	}
	g.totals.cxActive.Add(1)
	g.totals.cxTotal.Add(1)
	return nil
}

// Closed gives the place back, and tells those who wait for one.
func (g *gate) Closed() {
	g.totals.cxActive.Add(-1)
	g.cluster.gauges[discovery.DefaultPriority][Connections].leave()
	g.cluster.wake()
}

// wake tells those who wait for a stream that there may be a further connection. It may be called with any lock held.
func (c *Cluster) wake() {
	if !c.Config().HTTP2 || c.gauges[discovery.DefaultPriority][Pending].active.Load() <= 0 || !c.waking.CompareAndSwap(false, true) {
		return
	}
	c.set.start(func(context.Context) {
		c.waking.Store(false)
		c.mu.Lock()
		order := c.order
		c.mu.Unlock()
		for _, e := range order {
			if p := e.upstream.http2; p != nil {
				p.Wake()
			}
		}
	})
}

// pending is the breaker on those who wait for a stream, for all endpoints of the cluster together. It implements http2.Queue.
type pending Cluster

// Join takes a place.
func (p *pending) Join(again bool) bool {
	c := (*Cluster)(p)
	g := &c.gauges[discovery.DefaultPriority][Pending]
	if again {
		g.active.Add(1)
		return true
	}
	return g.enter(c.limit(discovery.DefaultPriority, Pending))
}

// Leave gives it back.
func (p *pending) Leave() { p.gauges[discovery.DefaultPriority][Pending].leave() }

// closeIdle closes an idle connection to any endpoint, and gives false where there is none.
func (c *Cluster) closeIdle() bool {
	c.mu.Lock()
	order := c.order
	c.mu.Unlock()
	return slices.ContainsFunc(order, func(e *endpoint) bool {
		return e.totals.cxActive.Load() > 0 && e.upstream.CloseOneIdle()
	})
}
