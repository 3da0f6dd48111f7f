package refresh

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// remember gives the state of p, made if need be; nil when there is no room.
func (c *core) remember(now time.Time, p pair, stranger bool) *pairState {
	m := c.pairs[p]
	if m != nil {
		m.seenAt = now
		if m.stranger && !stranger && c.node(now, p.node).pairs < c.limits.MaxPairsPerNode {
			m.stranger = false
			c.strangers.pairs--
			c.nodes[p.node].pairs++
		}
		return m
	}
	n, room := &c.strangers, c.limits.MaxStrangers
	if !stranger {
		n, room = c.node(now, p.node), c.limits.MaxPairsPerNode
	}
	if len(c.pairs) >= c.limits.MaxPairs || n.pairs >= room {
		return nil
	}
	n.pairs++
	m = &pairState{seenAt: now, stranger: stranger}
	c.pairs[p] = m
	return m
}

// node gives a node's state, made if need be.
func (c *core) node(now time.Time, id mesh.NodeID) *nodeState {
	n := c.nodes[id]
	if n == nil {
		n = &nodeState{budget: newBucket(c.limits.NodePerSecond, c.limits.NodeBurst, now)}
		c.nodes[id] = n
	}
	return n
}

// of is whose budget pays for a pair.
func (c *core) of(m *pairState, id mesh.NodeID) *nodeState {
	if m.stranger {
		return &c.strangers
	}
	return c.nodes[id]
}

// sweep forgets what was not heard of for limits.Forget. It looks at
// everything, so it does so only a few times in that span.
func (c *core) sweep(now time.Time) {
	if now.Sub(c.sweptAt) < c.limits.Forget/4 {
		return
	}
	c.sweptAt = now
	for p, m := range c.pairs {
		if _, waits := c.later[p]; waits || now.Sub(m.seenAt) < c.limits.Forget || now.Before(m.resendAfter) {
			continue
		}
		delete(c.pairs, p)
		c.of(m, p.node).pairs--
	}
	for id, n := range c.nodes {
		// A node whose bucket is not full yet is kept, or forgetting would fill it.
		if n.pairs == 0 && n.budget.full(now) {
			delete(c.nodes, id)
		}
	}
	for key, s := range c.services {
		if !s.queued && !s.reading && now.Sub(s.startedAt) >= c.limits.Share {
			delete(c.services, key)
		}
	}
}
