package discovery

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Priority is a routing priority (envoy.config.core.v3.RoutingPriority), by
// which limits differ. It has nothing to do with the priority of endpoints.
type Priority uint8

// The routing priorities.
const (
	DefaultPriority Priority = iota
	HighPriority
	// Priorities is how many there are.
	Priorities
)

// String gives "default" or "high".
func (p Priority) String() string {
	if p == HighPriority {
		return "high"
	}
	return "default"
}

// Limits are the thresholds of circuit_breakers for one priority.
type Limits struct {
	// Connections are those open, Pending the requests that wait for an
	// endpoint, Requests those active, Retries those active that are retries.
	Connections, Pending, Requests, Retries uint32
	// RetryPercent lets retries be so many percent of the active requests, and Retries if that is more; 0 for no such share.
	RetryPercent float64
}

// DefaultLimits hold where a resource says nothing: Envoy's defaults, and the
// share of retries that Envoy's retry_budget has.
var DefaultLimits = Limits{Connections: 1024, Pending: 1024, Requests: 1024, Retries: 3, RetryPercent: 20}

// Limits gives the limits for a priority.
func (c *Cluster) Limits(p Priority) Limits {
	if c.Breakers == nil || p >= Priorities {
		return DefaultLimits
	}
	return c.Breakers[p]
}

// readBreakers takes the first thresholds of each priority. A number of
// retries that was given holds as it is; only without one a share of the requests is added.
func readBreakers(b *clusterv3.CircuitBreakers) *[Priorities]Limits {
	all := [Priorities]Limits{DefaultLimits, DefaultLimits}
	var seen [Priorities]bool
	for _, t := range b.GetThresholds() {
		p := DefaultPriority
		if t.GetPriority() == corev3.RoutingPriority_HIGH {
			p = HighPriority
		}
		if seen[p] {
			continue
		}
		seen[p] = true
		l := &all[p]
		l.Connections = numberOr(t.GetMaxConnections(), l.Connections)
		l.Pending = numberOr(t.GetMaxPendingRequests(), l.Pending)
		l.Requests = numberOr(t.GetMaxRequests(), l.Requests)
		if n := t.GetMaxRetries(); n != nil {
			l.Retries, l.RetryPercent = n.GetValue(), 0
		}
		if r := t.GetRetryBudget(); r != nil {
			l.Retries, l.RetryPercent = numberOr(r.GetMinRetryConcurrency(), DefaultLimits.Retries), DefaultLimits.RetryPercent
			if r.GetBudgetPercent() != nil {
				l.RetryPercent = min(max(r.GetBudgetPercent().GetValue(), 0), 100)
			}
		}
	}
	return &all
}
