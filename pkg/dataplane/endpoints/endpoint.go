package endpoints

import (
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/balance"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// endpoint is one endpoint of one cluster while it is listed.
type endpoint struct {
	// set once
	key      mesh.EndpointKey
	upstream *hop
	load     *balance.Load
	totals   *totals
	tally    *tally

	// guarded by Cluster.mu
	listed    mesh.Endpoint
	ejection  ejection
	opinion   opinion
	checks    checks
	suspected bool
	// since is when it became usable, for slow start; zero for before anybody looked.
	since time.Time
	// entry is what pickers have of it; immutable, replaced by refresh.
	entry *balance.Entry
	// rates are those of the last interval; nil where there were too few requests.
	rate, localRate *float64
	// epoch is that of the last update that listed it.
	epoch uint64

	// out mirrors ejection.ejected for those who do not hold the lock.
	out atomic.Bool
	// left is when the drain of an endpoint that is listed no more ends, in Unix nanoseconds; 0 while it is listed.
	left atomic.Int64
}

// totals count since the endpoint was first listed; they outlive its upstream.
type totals struct {
	issued, succeeded, failed, connectFailed, cxTotal, ejections atomic.Uint64
	cxActive                                                     atomic.Int64
}

func (t *totals) add(l discovery.Load) {
	t.issued.Add(l.Issued)
	t.succeeded.Add(l.Succeeded)
	t.failed.Add(l.Failed)
	t.connectFailed.Add(l.ConnectFailed)
}

func (t *totals) load() discovery.Load {
	return discovery.Load{
		Issued: t.issued.Load(), Succeeded: t.succeeded.Load(),
		Failed: t.failed.Load(), ConnectFailed: t.connectFailed.Load(),
	}
}

// usableHealth tells whether discovery and our checks let the endpoint be used.
func (e *endpoint) usableHealth() bool { return eligible(e.listed) && !e.checks.failed() }

func eligible(e mesh.Endpoint) bool { return e.Health == mesh.Healthy || e.Health == mesh.Degraded }

// entryOf is what a picker is to have of the endpoint now.
func (e *endpoint) entryOf() balance.Entry {
	n := balance.Entry{Endpoint: e.listed, Load: e.load, Since: e.since, Owner: e}
	if eligible(e.listed) && e.checks.failed() {
		n.Health = mesh.Unhealthy
	}
	switch {
	case e.ejection.ejected():
		n.Out = balance.Gone
	case e.opinion.ejected():
		n.Out = balance.Doubted
	}
	return n
}

// refresh brings the entry up to date. It needs mu.
func (c *Cluster) refresh(e *endpoint) {
	e.out.Store(e.ejection.ejected())
	if e.ejection.ejected() || e.opinion.ejected() {
		c.out[e] = struct{}{}
	} else {
		delete(c.out, e)
	}
	if n := e.entryOf(); e.entry == nil || *e.entry != n {
		e.entry = &n
	}
}
