package endpoints

import (
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Status is a cluster's state at one moment.
type Status struct {
	Config    *discovery.Cluster
	Endpoints []EndpointStatus
	// Phase is for outbound requests; Without is since when no endpoint is usable, zero while one is.
	Phase    Phase
	Without  time.Time
	Breakers []BreakerStatus
}

// EndpointStatus is an endpoint's state at one moment.
type EndpointStatus struct {
	mesh.Endpoint
	InFlight int64
	EWMA     time.Duration
	// Ejected is true from a failed dial until one succeeds, or while Doubted; EjectedUntil, Reason and OnTrial are zero without.
	Ejected bool
	// Doubted is true for an ejection by how the endpoint answered: it is used if nothing else is usable.
	Doubted bool
	// ConnectFailures is how many dials failed in a row.
	ConnectFailures int
	EjectedUntil    time.Time
	Reason          upstream.Reason
	OnTrial         bool
	// FailedCheck tells that an active health check keeps the endpoint out,
	// CheckPending that one has no result yet, CheckWhy what was wrong.
	FailedCheck, CheckPending bool
	CheckWhy                  string
	// SuccessRate and LocalSuccessRate are those of the last interval in percent; nil where there were too few requests.
	SuccessRate, LocalSuccessRate *float64
	// Ejections, and Connections made, count since the endpoint was first listed.
	Ejections, Connections uint64
	OpenConnections        int64
	Total                  discovery.Load
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
	st := Status{
		Config: c.Config(), Phase: c.availability.phase(now, c.set.cfg.FailFast), Without: c.availability.without, Breakers: c.Breakers(),
	}
	for _, e := range c.order {
		s := EndpointStatus{
			Endpoint: e.listed, InFlight: e.load.InFlight(), EWMA: e.load.EWMA(now),
			FailedCheck: e.checks.failed(), CheckPending: e.checks.pending(), CheckWhy: e.checks.why(),
			SuccessRate: e.rate, LocalSuccessRate: e.localRate,
			Ejections: e.totals.ejections.Load(), Connections: e.totals.cxTotal.Load(), OpenConnections: e.totals.cxActive.Load(),
			Total: e.totals.load(),
		}
		switch x, p := &e.ejection, &e.opinion; {
		case x.ejected():
			s.Ejected, s.ConnectFailures, s.EjectedUntil = true, x.failures, x.dueAt(c.availability.none())
			s.Reason, s.OnTrial = x.reason, x.onTrial
		case p.ejected():
			s.Ejected, s.Doubted, s.EjectedUntil, s.Reason, s.OnTrial = true, true, p.until, p.reason, p.onTrial
		}
		st.Endpoints = append(st.Endpoints, s)
	}
	return st
}
