package endpoints

import (
	"context"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/health"
)

// checks are the active health checks of one endpoint; all must be good. The
// zero value has none. Guarded by Cluster.mu.
type checks struct {
	results []checkResult
	stops   []context.CancelFunc
}

type checkResult struct {
	// known is false until the first result; until then bad is what is presumed.
	known, bad bool
	why        string
}

// failed tells whether a check keeps the endpoint out.
func (k *checks) failed() bool {
	for _, r := range k.results {
		if r.bad {
			return true
		}
	}
	return false
}

// pending tells whether a check has no result yet.
func (k *checks) pending() bool {
	for _, r := range k.results {
		if !r.known {
			return true
		}
	}
	return false
}

func (k *checks) why() string {
	for _, r := range k.results {
		if r.bad && r.why != "" {
			return r.why
		}
	}
	return ""
}

func (k *checks) stop() {
	for _, stop := range k.stops {
		stop()
	}
	k.stops = nil
}

// startChecks begins the checks that dc has. A new endpoint is presumed bad
// until its first result, as in Envoy; one that was in use, that it still is
// what it was. It needs mu.
func (c *Cluster) startChecks(dc *discovery.Cluster, e *endpoint, before *checks) {
	presumed := before == nil || before.failed()
	e.checks = checks{}
	for i, check := range dc.HealthChecks {
		e.checks.results = append(e.checks.results, checkResult{bad: presumed})
		target := health.Target{
			Check: check, Address: e.key.Address, Authority: c.name, Traffic: c.traffic,
			Report: func(healthy bool, why string) { c.checked(e, i, healthy, why) },
		}
		if stop, ok := c.set.start(func(ctx context.Context) { health.Run(ctx, target) }); ok {
			e.checks.stops = append(e.checks.stops, stop)
		}
	}
}

// checked takes a result of check i of e.
func (c *Cluster) checked(e *endpoint, i int, healthy bool, why string) {
	c.mu.Lock()
	if c.endpoints[e.key] != e || i >= len(e.checks.results) {
		c.mu.Unlock()
		return
	}
	was, first := e.checks.failed(), !e.checks.results[i].known
	e.checks.results[i] = checkResult{known: true, bad: !healthy, why: why}
	bad := e.checks.failed()
	if !bad && (was || first) {
		if was {
			e.since = time.Now()
		}
		if e.opinion.ejected() {
			// As Envoy's successful_active_health_check_uneject_host.
			e.opinion.readmit()
			e.tally.forget()
		}
	}
	c.refresh(e)
	c.rebuild(c.Config())
	closed := func() {}
	if bad && !was {
		closed = c.closeEjected(e)
	}
	c.mu.Unlock()
	closed()
	switch {
	case bad && (!was || first):
		c.set.log.Warn("endpoint fails its health check", "cluster", c.name, "endpoint", e.key.Address, "why", why)
	case was && !bad && !first:
		c.set.log.Info("endpoint passes its health check again", "cluster", c.name, "endpoint", e.key.Address)
	}
}

// sawTraffic tells the checks that somebody uses the cluster.
func (c *Cluster) sawTraffic() {
	if !c.used.Load() && c.used.CompareAndSwap(false, true) {
		close(c.traffic)
	}
}
