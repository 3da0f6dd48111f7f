package endpoints

import (
	"reflect"
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
	// traffic is closed by the first request.
	traffic chan struct{}

	// atomic
	roster atomic.Pointer[roster]
	// nextTrial is the earliest moment, in Unix nanoseconds, at which a trial
	// by dial is due, nextReturn the same for one by a request, nextSweep the end of the interval of rates.
	nextTrial, nextReturn, nextSweep atomic.Int64
	gauges                           gauges
	used                             atomic.Bool
	// waking: a goroutine is about to tell those who wait for a stream that there may be a connection.
	waking atomic.Bool
	// removed: discovery says that there is no such service any more.
	removed atomic.Bool

	mu        sync.Mutex // guards all below
	endpoints map[mesh.EndpointKey]*endpoint
	// order is that of the assignment; replaced, never changed.
	order []*endpoint
	// out are the endpoints that are ejected, either way.
	out map[*endpoint]struct{}
	// changed is closed and replaced with every new roster.
	changed      chan struct{}
	availability availability
	// probing: the goroutine of probe runs. trials counts dials of endpoints on trial.
	probing bool
	trials  int
	// leases are the requests that may have to be closed, by seq; newer ones have higher ones.
	leases map[uint64]*Lease
	seq    uint64
	epoch  uint64
	// scratch is for rebuild.
	scratch []*balance.Entry
}

// roster is what a request needs; immutable.
type roster struct {
	config *discovery.Cluster
	picker *balance.Picker
}

func newCluster(s *Set, name string) *Cluster {
	return &Cluster{
		name: name, set: s, traffic: make(chan struct{}), changed: make(chan struct{}),
		endpoints: map[mesh.EndpointKey]*endpoint{}, out: map[*endpoint]struct{}{}, leases: map[uint64]*Lease{},
	}
}

// Name is the cluster's name.
func (c *Cluster) Name() string { return c.name }

// Config is the cluster as discovery last gave it.
func (c *Cluster) Config() *discovery.Cluster { return c.roster.Load().config }

// ClosesEstablished tells whether a Request should have a Cancel.
func (c *Cluster) ClosesEstablished() bool {
	cfg := c.Config()
	return cfg.CloseOnEjection || cfg.CloseOnOverload
}

// update takes a new form of the cluster. It gives the upstreams that it
// retires and those whose idle connections are to be closed, and what closes
// requests over a limit that was lowered.
func (c *Cluster) update(dc *discovery.Cluster) (retired, quiet []*hop, closed func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := &updating{Cluster: c, dc: dc, now: time.Now(), alike: true, checksAlike: true}
	if r := c.roster.Load(); r != nil {
		u.alike = connectsAlike(r.config, dc)
		u.checksAlike = reflect.DeepEqual(r.config.HealthChecks, dc.HealthChecks)
		u.outlierGone = dc.Outlier == nil && r.config.Outlier != nil
	}
	c.epoch++
	before := c.order
	order := make([]*endpoint, len(dc.Endpoints))
	for i, listed := range dc.Endpoints {
		// Most updates change little, and leave the order as it is.
		if i < len(before) && before[i].key == listed.EndpointKey {
			order[i] = u.take(listed, before[i])
		} else {
			order[i] = u.take(listed, c.endpoints[listed.EndpointKey])
		}
		order[i].epoch = c.epoch
	}
	for _, e := range before {
		if e.epoch != c.epoch {
			u.drop(e)
		}
	}
	c.order = order
	c.rebuild(dc)
	if dc.Outlier != nil && c.nextSweep.Load() == 0 {
		c.nextSweep.Store(u.now.Add(dc.Outlier.Interval).UnixNano())
	}
	return u.retired, u.quiet, c.closeOverload()
}

// updating is one update.
type updating struct {
	*Cluster
	dc                              *discovery.Cluster
	now                             time.Time
	alike, checksAlike, outlierGone bool
	retired, quiet                  []*hop
}

// take gives the endpoint for what is listed; e is what is known of it, or nil.
func (u *updating) take(listed mesh.Endpoint, e *endpoint) *endpoint {
	switch {
	case e == nil:
		e = &endpoint{key: listed.EndpointKey, load: new(balance.Load), totals: new(totals), tally: new(tally), listed: listed}
		e.upstream = u.set.connect(u.dc, listed, &gate{u.Cluster, e.totals})
		if u.dc.Balancing.SlowStart.Window > 0 {
			e.since = u.now
		}
		u.endpoints[e.key] = e
		u.startChecks(u.dc, e, nil)
	case !u.alike:
		e = u.replace(e)
	case !u.checksAlike:
		e.checks.stop()
		u.startChecks(u.dc, e, new(e.checks))
	case e.listed == listed && !u.outlierGone:
		return e
	}
	if u.outlierGone && e.opinion.ejected() {
		e.opinion.readmit()
	}
	if listed.Health == mesh.Draining && e.listed.Health != mesh.Draining {
		u.quiet = append(u.quiet, e.upstream)
	}
	e.listed = listed
	u.refresh(e)
	return e
}

// replace makes connections anew, and keeps what is known of the endpoint.
func (u *updating) replace(old *endpoint) *endpoint {
	u.drop(old)
	e := &endpoint{
		key: old.key, load: old.load, totals: old.totals, tally: old.tally, listed: old.listed,
		ejection: old.ejection, opinion: old.opinion, since: old.since, rate: old.rate, localRate: old.localRate,
	}
	e.ejection.onTrial, e.opinion.onTrial = false, false
	e.upstream = u.set.connect(u.dc, e.listed, &gate{u.Cluster, e.totals})
	u.endpoints[e.key] = e
	u.startChecks(u.dc, e, new(old.checks))
	return e
}

// drop takes an endpoint out of use.
func (u *updating) drop(e *endpoint) {
	// What takes its place is still to come under the same key.
	if u.endpoints[e.key] == e {
		delete(u.endpoints, e.key)
	}
	e.epoch = u.epoch
	e.checks.stop()
	delete(u.out, e)
	e.leave(u.now, u.set.drain(u.dc))
	u.retired = append(u.retired, e.upstream)
}

// connectsAlike tells whether connections made for one form serve the other.
func connectsAlike(a, b *discovery.Cluster) bool {
	return a.HTTP2 == b.HTTP2 && a.ConnectTimeout == b.ConnectTimeout
}

// rebuild makes a new roster and wakes who waits for one. It needs mu.
func (c *Cluster) rebuild(dc *discovery.Cluster) {
	c.scratch = c.scratch[:0]
	for _, e := range c.order {
		c.scratch = append(c.scratch, e.entry)
	}
	var before *balance.Picker
	if r := c.roster.Load(); r != nil {
		before = r.picker
	}
	r := &roster{config: dc, picker: balance.New(balancing(dc), c.scratch, before)}
	c.availability.found(time.Now(), r.picker.Usable() > 0)
	c.schedule()
	c.roster.Store(r)
	close(c.changed)
	c.changed = make(chan struct{})
}

func balancing(dc *discovery.Cluster) balance.Config {
	b := dc.Balancing
	return balance.Config{
		Policy: policy(dc.Policy), MinRing: int(b.MinRing), MaxRing: int(b.MaxRing), Table: int(b.MaglevTable),
		LocalityWeighted: b.LocalityWeighted, Overprovisioning: float64(b.Overprovisioning) / 100, Panic: b.PanicThreshold / 100,
		SlowStart: balance.SlowStart{Window: b.SlowStart.Window, Aggression: b.SlowStart.Aggression, Min: b.SlowStart.MinWeightPercent / 100},
	}
}

func policy(p discovery.Policy) balance.Policy {
	switch p {
	case discovery.RoundRobin:
		return balance.RoundRobin
	case discovery.Random:
		return balance.Random
	case discovery.RingHash:
		return balance.RingHash
	case discovery.Maglev:
		return balance.Maglev
	case discovery.LeastRequest:
	}
	return balance.LeastRequest
}

// retireAll takes the cluster out of use and gives its upstreams.
func (c *Cluster) retireAll() []*hop {
	empty := *c.Config()
	empty.Endpoints = nil
	retired, _, _ := c.update(&empty)
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
	now := time.Now()
	c.mu.Lock()
	counted := e.ejection.fail(began, now, reason)
	failures := e.ejection.failures
	listed := c.endpoints[e.key] == e
	closed := func() {}
	if counted && listed {
		if failures == 1 {
			e.totals.ejections.Add(1)
			closed = c.closeEjected(e)
		}
		c.refresh(e)
		c.rebuild(c.Config())
	}
	none := c.availability.none()
	until := e.ejection.dueAt(none)
	ask := counted && listed && (failures >= distrustAfter || none)
	c.mu.Unlock()
	closed()
	if !counted || !listed {
		return
	}
	facts := []any{
		"cluster", c.name, "endpoint", e.key.Address, "reason", reason,
		"failures", failures, "backoff", until.Sub(now).Round(time.Millisecond).String(),
	}
	if failures == 1 {
		c.set.cfg.Ejected(reason)
		c.set.log.Warn("endpoint ejected", facts...)
	} else {
		c.set.log.Debug("endpoint stays ejected", facts...)
	}
	if ask {
		c.set.cfg.Reporter.Distrust(c.name)
	}
}

// dialed makes e usable if its dial began after it was ejected.
func (c *Cluster) dialed(e *endpoint, began time.Time) {
	c.mu.Lock()
	back := e.ejection.succeed(began)
	if back {
		e.load.Forget()
		e.tally.forget()
		if c.Config().Balancing.SlowStart.Window > 0 {
			e.since = time.Now()
		}
	}
	if back && c.endpoints[e.key] == e {
		c.refresh(e)
		c.rebuild(c.Config())
	}
	c.mu.Unlock()
	if back {
		c.set.log.Info("endpoint usable again", "cluster", c.name, "endpoint", e.key.Address)
	}
}
