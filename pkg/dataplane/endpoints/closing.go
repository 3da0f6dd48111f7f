package endpoints

import (
	"cmp"
	"slices"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// register notes a lease that may have to be closed.
func (c *Cluster) register(l *Lease) {
	cfg := c.Config()
	if !cfg.CloseOnEjection && !cfg.CloseOnOverload {
		return
	}
	c.mu.Lock()
	c.seq++
	l.seq = c.seq
	c.leases[l.seq] = l
	// It may have been ejected between the choice and now.
	late := cfg.CloseOnEjection && l.endpoint.ejection.ejected()
	c.mu.Unlock()
	if late {
		cancel([]*Lease{l}, upstream.EndpointEjected)
	}
}

// ended takes a lease off the register, and ends a trial without a verdict: the next request is the trial.
func (c *Cluster) ended(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leases, l.seq)
	if l.trial && l.endpoint.opinion.onTrial {
		l.endpoint.opinion.onTrial = false
		c.schedule()
	}
}

// closeEjected gives what closes the requests that an endpoint which is now
// out still has, where the cluster wants that. It needs mu, and what it gives must be called without.
func (c *Cluster) closeEjected(e *endpoint) func() {
	if !c.Config().CloseOnEjection {
		return func() {}
	}
	var all []*Lease
	for _, l := range c.leases {
		if l.endpoint == e {
			all = append(all, l)
		}
	}
	return func() {
		cancel(all, upstream.EndpointEjected)
		e.upstream.CloseIdle()
	}
}

// closeOverload gives what closes the newest requests above the limit, where
// the cluster wants that. It needs mu, and what it gives must be called without.
func (c *Cluster) closeOverload() func() {
	if !c.Config().CloseOnOverload {
		return func() {}
	}
	var victims []*Lease
	for p := range c.gauges {
		priority := discovery.Priority(p)
		over := c.gauges[p][Requests].active.Load() - int64(c.limit(priority, Requests))
		if over <= 0 {
			continue
		}
		var all []*Lease
		for _, l := range c.leases {
			if l.request.Priority == priority && !l.request.Opaque {
				all = append(all, l)
			}
		}
		slices.SortFunc(all, func(a, b *Lease) int { return cmp.Compare(b.seq, a.seq) })
		victims = append(victims, all[:min(int(over), len(all))]...)
	}
	return func() { cancel(victims, upstream.BreakerRequests) }
}

func cancel(all []*Lease, reason upstream.Reason) {
	for _, l := range all {
		l.request.Cancel(&upstream.Error{Reason: reason, NextHop: l.Key.Address})
	}
}
