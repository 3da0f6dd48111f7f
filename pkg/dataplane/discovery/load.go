package discovery

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// quietTime is after how long without a request an endpoint's counter leaves the
// map, and how much longer it is still read for whoever had just looked it up.
const quietTime = 10 * time.Minute

// loads counts what happens to requests. Counting takes two map look-ups and
// atomic additions; the maps are copied when something new comes, which is rare.
type loads struct {
	clusters atomic.Pointer[map[string]*clusterLoads]
	// mu guards the replacing of maps, usedAt of the counters, and retired.
	mu sync.Mutex
	// retired are counters that have left the map.
	retired []delta
}

type clusterLoads struct {
	endpoints atomic.Pointer[map[mesh.EndpointKey]*counter]
}

type counter struct {
	issued, succeeded, failed, connectFailed atomic.Uint64
	// usedAt is when a report last found something here.
	usedAt time.Time
	_      [8]byte // a cache line for each
}

// delta is what one endpoint counted since the last report.
type delta struct {
	cluster string
	key     mesh.EndpointKey
	counter *counter
	Load
}

func newLoads() *loads {
	l := &loads{}
	l.clusters.Store(&map[string]*clusterLoads{})
	return l
}

func (l *loads) count(cluster string, key mesh.EndpointKey, n Load) {
	if c := (*l.clusters.Load())[cluster]; c != nil {
		if e := (*c.endpoints.Load())[key]; e != nil {
			e.add(n)
			return
		}
	}
	l.counter(cluster, key).add(n)
}

func (c *counter) add(n Load) {
	for _, p := range [...]struct {
		to *atomic.Uint64
		n  uint64
	}{{&c.issued, n.Issued}, {&c.succeeded, n.Succeeded}, {&c.failed, n.Failed}, {&c.connectFailed, n.ConnectFailed}} {
		if p.n != 0 {
			p.to.Add(p.n)
		}
	}
}

// counter finds or makes the counter of an endpoint.
func (l *loads) counter(cluster string, key mesh.EndpointKey) *counter {
	l.mu.Lock()
	defer l.mu.Unlock()
	clusters := *l.clusters.Load()
	c := clusters[cluster]
	if c == nil {
		c = &clusterLoads{}
		c.endpoints.Store(&map[mesh.EndpointKey]*counter{})
		clusters = maps.Clone(clusters)
		clusters[cluster] = c
		l.clusters.Store(&clusters)
	}
	endpoints := *c.endpoints.Load()
	if e := endpoints[key]; e != nil {
		return e
	}
	e := &counter{}
	endpoints = maps.Clone(endpoints)
	endpoints[key] = e
	c.endpoints.Store(&endpoints)
	return e
}

// take gives what was counted, and begins again from zero. In no order, and a
// counter that was retired and came back may be in it twice.
func (l *loads) take(now time.Time) []delta {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []delta
	read := func(d delta) (quiet bool) {
		d.Load = d.counter.take()
		if d.Load != (Load{}) {
			list = append(list, d)
		}
		if d.Load != (Load{}) || d.counter.usedAt.IsZero() {
			d.counter.usedAt = now
		}
		return now.Sub(d.counter.usedAt) >= quietTime
	}
	l.retired = slices.DeleteFunc(l.retired, read)
	for name, c := range *l.clusters.Load() {
		for key, e := range *c.endpoints.Load() {
			if d := (delta{cluster: name, key: key, counter: e}); read(d) {
				e.usedAt = now
				l.retire(d, c)
			}
		}
	}
	return list
}

func (c *counter) take() Load {
	return Load{c.issued.Swap(0), c.succeeded.Swap(0), c.failed.Swap(0), c.connectFailed.Swap(0)}
}

// retire takes a counter out of the maps.
func (l *loads) retire(d delta, c *clusterLoads) {
	l.retired = append(l.retired, d)
	endpoints := maps.Clone(*c.endpoints.Load())
	delete(endpoints, d.key)
	c.endpoints.Store(&endpoints)
	if len(endpoints) == 0 {
		clusters := maps.Clone(*l.clusters.Load())
		delete(clusters, d.cluster)
		l.clusters.Store(&clusters)
	}
}

// giveBack undoes a take whose report could not be sent.
func giveBack(list []delta) {
	for _, d := range list {
		d.counter.add(d.Load)
	}
}
