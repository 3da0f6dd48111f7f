package endpoints

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Reporter is what endpoints tell discovery. Neither method blocks.
type Reporter interface {
	Count(cluster string, key mesh.EndpointKey, load discovery.Load)
	Distrust(cluster string)
}

// Config is what a Set is made of.
type Config struct {
	Reporter Reporter
	// NewUpstream makes the connections to one endpoint; nil is upstream.New.
	NewUpstream func(upstream.Config) upstream.Upstream
	// FailFast is how long requests wait for a cluster without usable endpoint; 0 is 3 s.
	FailFast time.Duration
	// Drain is what connections to a removed endpoint get to finish; 0 is 30 s.
	Drain time.Duration
	// Ejected hears of each ejection; may be nil. It must not block.
	Ejected func(upstream.Reason)
	Logger  hclog.Logger
}

// Set is the clusters in effect, by name. It implements discovery.Applier.
type Set struct {
	cfg Config
	log hclog.Logger

	clusters atomic.Pointer[map[string]*Cluster]

	ctx    context.Context //nolint:containedctx // ends the trials, which outlive the requests that begin them
	cancel context.CancelFunc
	mu     sync.Mutex // guards closed, and wg.Add against it; serialises writers of clusters
	closed bool
	wg     sync.WaitGroup
}

// New makes an empty set. Close ends it.
func New(cfg Config) *Set {
	if cfg.NewUpstream == nil {
		cfg.NewUpstream = func(u upstream.Config) upstream.Upstream { return upstream.New(u) }
	}
	if cfg.FailFast <= 0 {
		cfg.FailFast = 3 * time.Second
	}
	if cfg.Drain <= 0 {
		cfg.Drain = 30 * time.Second
	}
	if cfg.Ejected == nil {
		cfg.Ejected = func(upstream.Reason) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	s := &Set{cfg: cfg, log: cfg.Logger.Named("endpoints")}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.clusters.Store(&map[string]*Cluster{})
	return s
}

// Cluster gives a cluster that is in effect, or nil.
func (s *Set) Cluster(name string) *Cluster { return (*s.clusters.Load())[name] }

// Apply puts dc into effect. It refuses nothing.
func (s *Set) Apply(dc *discovery.Cluster) error {
	c := s.Cluster(dc.Name)
	known := c != nil
	if !known {
		c = &Cluster{name: dc.Name, set: s}
	}
	retired, quiet := c.update(dc)
	if !known {
		s.change(func(all map[string]*Cluster) { all[dc.Name] = c })
	}
	s.retire(retired)
	for _, u := range quiet {
		u.CloseIdle()
	}
	return nil
}

// Remove takes a cluster out of effect: what is in flight finishes within the drain time.
func (s *Set) Remove(name string) {
	c := s.Cluster(name)
	if c == nil {
		return
	}
	s.change(func(all map[string]*Cluster) { delete(all, name) })
	s.retire(c.retireAll())
}

// change puts a changed copy of the clusters in place.
func (s *Set) change(edit func(map[string]*Cluster)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(*s.clusters.Load())
	edit(next)
	s.clusters.Store(&next)
}

func (s *Set) retire(us []upstream.Upstream) {
	for _, u := range us {
		u.Retire(s.cfg.Drain)
	}
}

// Close closes every connection and waits for trials to end. Apply after Close
// is a mistake.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	all := *s.clusters.Load()
	s.clusters.Store(&map[string]*Cluster{})
	s.mu.Unlock()
	s.cancel()
	for _, c := range all {
		for _, u := range c.retireAll() {
			u.Close()
		}
	}
	s.wg.Wait()
}

// start runs f in a goroutine that Close waits for; it gives false after Close.
func (s *Set) start(f func(context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Go(func() { f(s.ctx) })
	return true
}

func (s *Set) connect(dc *discovery.Cluster, e mesh.Endpoint) upstream.Upstream {
	return s.cfg.NewUpstream(upstream.Config{Address: e.Address, HTTP2: dc.HTTP2, ConnectTimeout: dc.ConnectTimeout})
}

// Status is a cluster's state at one moment.
type Status struct {
	Config    *discovery.Cluster
	Endpoints []EndpointStatus
}

// EndpointStatus is an endpoint's state at one moment.
type EndpointStatus struct {
	mesh.Endpoint
	InFlight int64
	EWMA     time.Duration
	// Ejected is true from a failed dial until one succeeds; the three after it are zero without.
	Ejected bool
	// ConnectFailures is how many dials failed in a row.
	ConnectFailures int
	EjectedUntil    time.Time
	Reason          upstream.Reason
	OnTrial         bool
	Total           discovery.Load
}

// Status gives every cluster, sorted by name, endpoints in the order of the assignment.
func (s *Set) Status() []Status {
	all := *s.clusters.Load()
	out := make([]Status, 0, len(all))
	for _, c := range all {
		out = append(out, c.status(time.Now()))
	}
	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.Config.Name, b.Config.Name) })
	return out
}

func (c *Cluster) status(now time.Time) Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := Status{Config: c.Config()}
	for _, listed := range st.Config.Endpoints {
		e := c.endpoints[listed.EndpointKey]
		x := e.ejection
		st.Endpoints = append(st.Endpoints, EndpointStatus{
			Endpoint: listed, InFlight: e.load.InFlight(), EWMA: e.load.EWMA(now),
			Ejected: x.ejected(), ConnectFailures: x.failures, EjectedUntil: x.dueAt(!c.without.IsZero()), Reason: x.reason, OnTrial: x.onTrial,
			Total: e.totals.load(),
		})
	}
	return st
}
