package discovery

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// quietReports is after how many reports without a request an endpoint's counter goes.
const quietReports = 30

// loads counts what happens to requests. Counting takes two map look-ups and
// atomic additions; the maps are copied when something new comes, which is rare.
type loads struct {
	clusters atomic.Pointer[map[string]*clusterLoads]
	// mu guards the replacing of maps, and the counters' quiet.
	mu sync.Mutex
}

type clusterLoads struct {
	endpoints atomic.Pointer[map[mesh.EndpointKey]*counter]
}

type counter struct {
	issued, succeeded, failed, connectFailed atomic.Uint64
	quiet                                    int
	_                                        [24]byte // a cache line for each
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
	c := (*l.clusters.Load())[cluster]
	if c == nil {
		c = l.addCluster(cluster)
	}
	e := (*c.endpoints.Load())[key]
	if e == nil {
		e = l.addEndpoint(c, key)
	}
	e.add(n)
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

func (l *loads) addCluster(name string) *clusterLoads {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := *l.clusters.Load()
	if c := old[name]; c != nil {
		return c
	}
	c := &clusterLoads{}
	c.endpoints.Store(&map[mesh.EndpointKey]*counter{})
	m := maps.Clone(old)
	m[name] = c
	l.clusters.Store(&m)
	return c
}

func (l *loads) addEndpoint(c *clusterLoads, key mesh.EndpointKey) *counter {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := *c.endpoints.Load()
	if e := old[key]; e != nil {
		return e
	}
	e := &counter{}
	m := maps.Clone(old)
	m[key] = e
	c.endpoints.Store(&m)
	return e
}

// take gives what was counted, and begins again from zero. In no order.
func (l *loads) take() []delta {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []delta
	var empty []string
	for name, c := range *l.clusters.Load() {
		var gone []mesh.EndpointKey
		for key, e := range *c.endpoints.Load() {
			n := Load{e.issued.Swap(0), e.succeeded.Swap(0), e.failed.Swap(0), e.connectFailed.Swap(0)}
			if n != (Load{}) {
				e.quiet = 0
				list = append(list, delta{name, key, e, n})
			} else if e.quiet++; e.quiet > quietReports {
				gone = append(gone, key)
			}
		}
		c.forget(gone)
		if len(*c.endpoints.Load()) == 0 {
			empty = append(empty, name)
		}
	}
	l.forget(empty)
	return list
}

// forget drops clusters without counters.
func (l *loads) forget(empty []string) {
	if len(empty) == 0 {
		return
	}
	m := maps.Clone(*l.clusters.Load())
	for _, name := range empty {
		delete(m, name)
	}
	l.clusters.Store(&m)
}

// forget drops counters that were silent for many reports. A count between the
// look-up and the addition of one request could be lost here, if a request took
// quietReports to add up; nothing depends on that one.
func (c *clusterLoads) forget(gone []mesh.EndpointKey) {
	if len(gone) == 0 {
		return
	}
	m := maps.Clone(*c.endpoints.Load())
	for _, key := range gone {
		delete(m, key)
	}
	c.endpoints.Store(&m)
}

// giveBack undoes a take whose report could not be sent.
func giveBack(list []delta) {
	for _, d := range list {
		d.counter.add(d.Load)
	}
}
