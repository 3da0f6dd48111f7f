package endpoints

import (
	"context"
	"maps"
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
	// NewUpstream dials one endpoint; nil is upstream.New.
	NewUpstream func(upstream.Config) upstream.Upstream
	// FailFast is how long requests wait for a cluster without usable endpoint; 0 is 3 s.
	FailFast time.Duration
	// Drain is what connections to a removed endpoint get to finish where the cluster says nothing; 0 is 30 s.
	Drain time.Duration
	// Ejected hears of each ejection; may be nil. It must not block.
	Ejected func(upstream.Reason)
	// Panicked hears of each panic on a connection of HTTP/2, which ends with all that is on it, and is logged; nil lets
	// it end the process. It must not block.
	Panicked func()
	// Pulse tells when this process did not run; nil for never.
	Pulse  *Pulse
	Logger hclog.Logger
}

// The defaults of Config.
const (
	DefaultFailFast = 3 * time.Second
	DefaultDrain    = 30 * time.Second
)

// InboundFailFast is the FailFast for a Set of applications on this host, which come up
// soon or not at all.
const InboundFailFast = time.Second

// Set is the clusters in effect, by name. It implements discovery.Applier.
type Set struct {
	// set once
	cfg Config
	log hclog.Logger

	clusters atomic.Pointer[map[string]*Cluster]

	mu     sync.Mutex // guards closed and running, and wg.Add against closed; serialises writers of clusters
	closed bool
	// running ends the goroutines, which outlive the requests that begin them.
	running map[*context.CancelFunc]struct{}
	wg      sync.WaitGroup
}

// New makes an empty set. Close ends it.
func New(cfg Config) *Set {
	if cfg.NewUpstream == nil {
		cfg.NewUpstream = func(u upstream.Config) upstream.Upstream { return upstream.New(u) }
	}
	for _, d := range []struct {
		to        *time.Duration
		otherwise time.Duration
	}{{&cfg.FailFast, DefaultFailFast}, {&cfg.Drain, DefaultDrain}} {
		if *d.to <= 0 {
			*d.to = d.otherwise
		}
	}
	if cfg.Ejected == nil {
		cfg.Ejected = func(upstream.Reason) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	s := &Set{cfg: cfg, log: cfg.Logger.Named("endpoints"), running: map[*context.CancelFunc]struct{}{}}
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
		c = newCluster(s, dc.Name)
	}
	retired, quiet, closed := c.update(dc)
	if !known {
		s.change(func(all map[string]*Cluster) { all[dc.Name] = c })
	}
	s.retire(retired, s.drain(dc))
	for _, u := range quiet {
		u.CloseIdle()
	}
	closed()
	// Its limit of connections may be higher now.
	c.wake()
	return nil
}

// Remove takes a cluster out of effect: what is in flight finishes within the drain time.
func (s *Set) Remove(name string) {
	c := s.Cluster(name)
	if c == nil {
		return
	}
	s.change(func(all map[string]*Cluster) { delete(all, name) })
	c.removed.Store(true)
	drain := s.drain(c.Config())
	s.retire(c.retireAll(), drain)
}

// change puts a changed copy of the clusters in place.
func (s *Set) change(edit func(map[string]*Cluster)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(*s.clusters.Load())
	edit(next)
	s.clusters.Store(&next)
}

func (s *Set) retire(us []*hop, drain time.Duration) {
	for _, u := range us {
		u.Retire(drain)
	}
}

// Close closes every connection and waits for trials and checks to end. Apply
// after Close is a mistake.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	all := *s.clusters.Load()
	s.clusters.Store(&map[string]*Cluster{})
	for cancel := range s.running {
		(*cancel)()
	}
	s.mu.Unlock()
	for _, c := range all {
		for _, u := range c.retireAll() {
			u.Close()
		}
	}
	s.wg.Wait()
}

// start runs f in a goroutine that Close ends and waits for. It gives what
// ends it earlier, and false after Close. The goroutine outlives the request that begins it.
//
//nolint:contextcheck // so its context is its own
func (s *Set) start(f func(context.Context)) (stop context.CancelFunc, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.running[&cancel] = struct{}{}
	s.wg.Go(func() {
		defer func() {
			cancel()
			s.mu.Lock()
			delete(s.running, &cancel)
			s.mu.Unlock()
		}()
		f(ctx)
	})
	return cancel, true
}
