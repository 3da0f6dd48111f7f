package endpoints

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/balance"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Cluster is the endpoints of one cluster.
type Cluster struct {
	// set once
	name string
	set  *Set

	roster atomic.Pointer[roster]
	// nextTrial is the earliest moment, in Unix nanoseconds, at which a trial is due.
	nextTrial atomic.Int64

	mu        sync.Mutex // guards all below
	endpoints map[mesh.EndpointKey]*endpoint
	// changed is closed and replaced with every new roster.
	changed chan struct{}
	// without is since when no endpoint is usable; zero while one is.
	without    time.Time
	distrusted time.Time
}

// roster is what a request needs; immutable.
type roster struct {
	config *discovery.Cluster
	picker *balance.Picker
	by     map[mesh.EndpointKey]*endpoint
	// ejected counts the endpoints that only ejection keeps from being usable.
	ejected int
}

// Name is the cluster's name.
func (c *Cluster) Name() string { return c.name }

// Config is the cluster as discovery last gave it.
func (c *Cluster) Config() *discovery.Cluster { return c.roster.Load().config }

// update takes a new form of the cluster and gives the upstreams that it retires.
func (c *Cluster) update(dc *discovery.Cluster) (retired, quiet []upstream.Upstream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.endpoints
	alike := c.roster.Load() == nil || connectsAlike(c.roster.Load().config, dc)
	c.endpoints = make(map[mesh.EndpointKey]*endpoint, len(dc.Endpoints))
	for _, listed := range dc.Endpoints {
		e, known := old[listed.EndpointKey]
		switch {
		case !known:
			e = &endpoint{key: listed.EndpointKey, load: new(balance.Load), totals: new(totals), upstream: c.set.connect(dc, listed)}
		case !alike:
			retired = append(retired, e.upstream)
			state := e.ejection
			state.onTrial = false
			e = &endpoint{key: e.key, load: e.load, totals: e.totals, upstream: c.set.connect(dc, listed), ejection: state}
		}
		if known && listed.Health == mesh.Draining && e.listed.Health != mesh.Draining {
			quiet = append(quiet, e.upstream)
		}
		e.listed = listed
		c.endpoints[listed.EndpointKey] = e
	}
	for key, e := range old {
		if c.endpoints[key] == nil {
			retired = append(retired, e.upstream)
		}
	}
	c.rebuild(dc)
	return retired, quiet
}

// connectsAlike tells whether connections made for one form serve the other.
func connectsAlike(a, b *discovery.Cluster) bool {
	return a.HTTP2 == b.HTTP2 && a.ConnectTimeout == b.ConnectTimeout
}

// rebuild makes a new roster and wakes who waits for one. It needs mu.
func (c *Cluster) rebuild(dc *discovery.Cluster) {
	r := &roster{config: dc, by: c.endpoints}
	entries := make([]balance.Entry, 0, len(dc.Endpoints))
	for _, listed := range dc.Endpoints {
		e := c.endpoints[listed.EndpointKey]
		out := e.ejection.ejected()
		e.out.Store(out)
		if out && eligible(listed) {
			r.ejected++
		}
		entries = append(entries, balance.Entry{Endpoint: listed, Load: e.load, Ejected: out})
	}
	r.picker = balance.New(policy(dc.Policy), entries)
	if r.picker.Usable() > 0 {
		c.without = time.Time{}
	} else if c.without.IsZero() {
		c.without = time.Now()
	}
	c.schedule()
	c.roster.Store(r)
	if c.changed != nil {
		close(c.changed)
	}
	c.changed = make(chan struct{})
}

func eligible(e mesh.Endpoint) bool { return e.Health == mesh.Healthy || e.Health == mesh.Degraded }

func policy(p discovery.Policy) balance.Policy {
	switch p {
	case discovery.RoundRobin:
		return balance.RoundRobin
	case discovery.Random:
		return balance.Random
	case discovery.RingHash, discovery.Maglev:
		return balance.RingHash
	case discovery.LeastRequest:
	}
	return balance.LeastRequest
}

// retireAll takes the cluster out of use and gives its upstreams.
func (c *Cluster) retireAll() []upstream.Upstream {
	empty := *c.Config()
	empty.Endpoints = nil
	retired, _ := c.update(&empty)
	return retired
}

// count adds to what the endpoint's status and the next load report show.
func (c *Cluster) count(e *endpoint, l discovery.Load) {
	e.totals.add(l)
	c.set.cfg.Reporter.Count(c.name, e.key, l)
}

// dialFailed ejects e, and doubts discovery when that is called for.
func (c *Cluster) dialFailed(e *endpoint, began time.Time, reason upstream.Reason) {
	c.count(e, discovery.Load{ConnectFailed: 1})
	c.mu.Lock()
	counted := e.ejection.fail(began, time.Now(), reason)
	failures := e.ejection.failures
	listed := c.endpoints[e.key] == e
	if counted && listed {
		c.rebuild(c.Config())
	}
	none := !c.without.IsZero()
	until := e.ejection.dueAt(none)
	c.mu.Unlock()
	if !counted || !listed {
		return
	}
	facts := []any{
		"cluster", c.name, "endpoint", e.key.Address, "reason", reason,
		"failures", failures, "backoff", time.Until(until).Round(time.Millisecond),
	}
	if failures == 1 {
		c.set.cfg.Ejected(reason)
		c.set.log.Warn("endpoint ejected", facts...)
	} else {
		c.set.log.Debug("endpoint stays ejected", facts...)
	}
	if failures >= distrustAfter || none {
		c.set.cfg.Reporter.Distrust(c.name)
	}
}

// dialed makes e usable if its dial began after it was ejected.
func (c *Cluster) dialed(e *endpoint, began time.Time) {
	c.mu.Lock()
	back := e.ejection.succeed(began)
	if back {
		e.load.Forget()
	}
	if back && c.endpoints[e.key] == e {
		c.rebuild(c.Config())
	}
	c.mu.Unlock()
	if back {
		c.set.log.Info("endpoint usable again", "cluster", c.name, "endpoint", e.key.Address)
	}
}

// trial dials e alone. The caller has set onTrial.
func (c *Cluster) trial(ctx context.Context, e *endpoint, done chan<- struct{}) {
	defer close(done)
	began := time.Now()
	err := e.upstream.Probe(ctx)
	if err == nil {
		c.dialed(e, began)
		return
	}
	if reason := upstream.ReasonOf(err); reason.Dial() {
		c.dialFailed(e, began, reason)
		return
	}
	// The set is closing: neither good nor bad.
	c.mu.Lock()
	e.ejection.onTrial = false
	c.mu.Unlock()
}

// suspect dials e alone, without a request that waits for it.
func (c *Cluster) suspect(e *endpoint) {
	c.mu.Lock()
	begin := !e.suspected && !e.ejection.ejected()
	if begin {
		e.suspected = true
	}
	c.mu.Unlock()
	if !begin {
		return
	}
	c.set.start(func(ctx context.Context) {
		began := time.Now()
		err := e.upstream.Probe(ctx)
		c.mu.Lock()
		e.suspected = false
		c.mu.Unlock()
		if reason := upstream.ReasonOf(err); reason.Dial() {
			c.dialFailed(e, began, reason)
		}
	})
}

// schedule notes when the next trial is due. It needs mu.
func (c *Cluster) schedule() {
	next := int64(math.MaxInt64)
	for _, e := range c.endpoints {
		if x := &e.ejection; x.ejected() && !x.onTrial && eligible(e.listed) {
			next = min(next, x.dueAt(!c.without.IsZero()).UnixNano())
		}
	}
	c.nextTrial.Store(next)
}
