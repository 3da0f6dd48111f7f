package endpoints

import (
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/balance"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// endpoint is one endpoint of one cluster while it is listed.
type endpoint struct {
	// set once
	key      mesh.EndpointKey
	upstream upstream.Upstream
	load     *balance.Load
	totals   *totals

	// guarded by Cluster.mu
	listed    mesh.Endpoint
	ejection  ejection
	suspected bool

	// out mirrors ejection.ejected for those who do not hold the lock.
	out atomic.Bool
}

// totals count since the endpoint was first listed; they outlive its upstream.
type totals struct {
	issued, succeeded, failed, connectFailed atomic.Uint64
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

// Lease is the use of one endpoint for one request or connection. It ends with
// exactly one call of DialFailed or End. A Lease belongs to one goroutine.
type Lease struct {
	// Cluster and Key say what is leased, Upstream reaches it.
	Cluster  *Cluster
	Key      mesh.EndpointKey
	Upstream upstream.Upstream

	endpoint *endpoint
	began    time.Time
	sent     time.Time
}

// DialFailed ends the lease: no connection was had. The endpoint is ejected at
// once when reason is its own fault, and dialled in the background when the
// caller could not wait to find out.
func (l *Lease) DialFailed(reason upstream.Reason) {
	l.endpoint.load.End()
	switch {
	case reason.Dial():
		l.Cluster.dialFailed(l.endpoint, l.began, reason)
	case reason != upstream.EndpointRemoved && time.Since(l.began) >= patience:
		l.Cluster.suspect(l.endpoint)
	}
}

// patience is how long a dial may take before its being given up says
// something of the endpoint: clients in more of a hurry than the connect
// timeout would otherwise never find out that an endpoint is dead.
const patience = 100 * time.Millisecond

// Connected says that a connection was had and the request goes out now.
func (l *Lease) Connected() {
	l.sent = time.Now()
	l.Cluster.count(l.endpoint, discovery.Load{Issued: 1})
	if l.endpoint.out.Load() {
		l.Cluster.dialed(l.endpoint, l.began)
	}
}

// Answered says that response headers have come, after Connected. ok is false
// for an answer that speaks of the endpoint's own trouble (502, 503, 504), or for none.
func (l *Lease) Answered(ok bool) {
	now := time.Now()
	l.endpoint.load.Observe(now, now.Sub(l.sent), ok)
}

// Dialed is Answered for an opaque connection: the time that the dial took is
// all that is known of the endpoint's latency.
func (l *Lease) Dialed() {
	now := time.Now()
	l.endpoint.load.Observe(now, now.Sub(l.began), true)
}

// End ends the lease; ok is false when the endpoint failed the request.
func (l *Lease) End(ok bool) {
	l.endpoint.load.End()
	if ok {
		l.Cluster.count(l.endpoint, discovery.Load{Succeeded: 1})
		return
	}
	l.Cluster.count(l.endpoint, discovery.Load{Failed: 1})
}
