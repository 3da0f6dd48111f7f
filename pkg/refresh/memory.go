package refresh

import "time"

// remember gives the state of p, made if need be; nil when there is no room.
func (c *core) remember(now time.Time, p pair) *pairState {
	if m := c.pairs[p]; m != nil {
		m.seenAt = now
		return m
	}
	if len(c.pairs) >= c.limits.MaxPairs {
		return nil
	}
	n := c.nodes[p.node]
	if n == nil {
		n = &nodeState{budget: newBucket(c.limits.NodePerSecond, c.limits.NodeBurst, now)}
		c.nodes[p.node] = n
	}
	if n.pairs >= c.limits.MaxPairsPerNode {
		return nil
	}
	n.pairs++
	m := &pairState{seenAt: now}
	c.pairs[p] = m
	return m
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
		c.nodes[p.node].pairs--
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
