package discovery

import (
	"net/netip"
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// host is a name of a DNS cluster. All its addresses become endpoints, for
// LOGICAL_DNS too: with several, a dead one can be left.
type host struct {
	users map[string]*sub
	// addrs are sorted, and stay when a later lookup fails.
	addrs    []netip.Addr
	answered bool
	pending  bool
	seq      uint64
	nextAt   time.Time
}

// endpoints are a cluster's endpoints, with a number that changes when host
// names resolve otherwise; ready is false while one was never looked up.
func (c *core) endpoints(s *sub, part *clusterPart, eds *entry) (list []mesh.Endpoint, seq uint64, ready bool) {
	if eds != nil {
		return eds.content.endpoints, 0, true
	}
	ready = true
	for _, t := range part.inline {
		if t.host == "" {
			list = append(list, t.endpoint)
			continue
		}
		h := c.hosts[t.host]
		if h == nil {
			h = &host{users: map[string]*sub{}, pending: true}
			c.hosts[t.host] = h
			c.out.resolve = append(c.out.resolve, t.host)
		}
		h.users[s.name] = s
		ready = ready && h.answered
		seq += h.seq
		for _, a := range h.addrs {
			e := t.endpoint
			e.Address = netip.AddrPortFrom(a, t.endpoint.Address.Port())
			list = append(list, e)
		}
	}
	return unique(list), seq, ready
}

// Resolved takes the result of a lookup. A failed one keeps the addresses of
// the last good one; with none the cluster has no endpoints yet.
func (c *core) Resolved(now time.Time, name string, addrs []netip.Addr, err error) {
	h := c.hosts[name]
	if h == nil {
		return
	}
	h.pending = false
	h.nextAt = now.Add(c.refreshOf(name, h))
	found := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		found = append(found, a.Unmap())
	}
	slices.SortFunc(found, netip.Addr.Compare)
	found = slices.Compact(found)
	if h.answered && (err != nil || slices.Equal(found, h.addrs)) {
		return
	}
	h.answered = true
	if err == nil {
		h.addrs = found
	}
	h.seq++
	for n, s := range h.users {
		if c.subs[n] != s {
			continue
		}
		if err := c.bringInForce(now, s); err != nil {
			c.reject(mesh.ResourceName{Type: mesh.TypeCluster, Name: n}, "", err)
		}
	}
	c.flush()
}

// refreshOf is the shortest refresh of the clusters that still name the host; it forgets the others.
func (c *core) refreshOf(name string, h *host) time.Duration {
	refresh := c.maxAge
	for n, s := range h.users {
		e := c.entries[mesh.ResourceName{Type: mesh.TypeCluster, Name: n}]
		if c.subs[n] != s || e == nil || e.content.cluster == nil || !slices.ContainsFunc(e.content.cluster.inline,
			func(t target) bool { return t.host == name }) {
			delete(h.users, n)
			continue
		}
		refresh = min(refresh, e.content.cluster.refresh)
	}
	return refresh
}

// lookUp asks for the host names that are due, and forgets those without users.
func (c *core) lookUp(now time.Time) {
	for name, h := range c.hosts {
		if h.pending || now.Before(h.nextAt) {
			continue
		}
		if c.refreshOf(name, h); len(h.users) == 0 {
			delete(c.hosts, name)
			continue
		}
		h.pending = true
		c.out.resolve = append(c.out.resolve, name)
	}
}
