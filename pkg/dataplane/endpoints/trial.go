package endpoints

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// keepProbing sees to it that trials go on while none is usable and somebody
// asked lately. It needs mu.
func (c *Cluster) keepProbing() {
	if c.probing || len(c.out) == 0 || !c.availability.none() {
		return
	}
	_, c.probing = c.set.start(c.probe)
}

// probe begins trials when they are due, until an endpoint is usable or nobody asks.
func (c *Cluster) probe(ctx context.Context) {
	for {
		now := time.Now()
		c.beginTrials(now, maxTrials)
		c.mu.Lock()
		over := c.availability.interest.Add(interestTime)
		if !c.availability.none() || !now.Before(over) || ctx.Err() != nil {
			c.probing = false
			c.mu.Unlock()
			return
		}
		changed := c.changed
		c.mu.Unlock()
		next := min(c.nextTrial.Load(), over.UnixNano())
		timer := time.NewTimer(max(time.Unix(0, next).Sub(now), time.Millisecond))
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// beginTrials begins up to limit trials that are due, and gives what is closed
// when the one begun last ends; nil when none is begun.
func (c *Cluster) beginTrials(now time.Time, limit int) <-chan struct{} {
	if now.UnixNano() < c.nextTrial.Load() {
		return nil
	}
	var begun []*endpoint
	c.mu.Lock()
	for e := range c.out {
		if len(begun) < min(limit, maxTrials-c.trials) && e.usableHealth() && e.ejection.due(now, c.availability.none()) {
			e.ejection.onTrial = true
			begun = append(begun, e)
		}
	}
	c.trials += len(begun)
	c.schedule()
	c.mu.Unlock()
	var last chan struct{}
	for _, e := range begun {
		done := make(chan struct{})
		if _, ok := c.set.start(func(ctx context.Context) { c.trial(ctx, e, done) }); ok {
			last = done
		}
	}
	return last
}

// trial dials e alone. The caller has set onTrial.
func (c *Cluster) trial(ctx context.Context, e *endpoint, done chan<- struct{}) {
	defer close(done)
	began := time.Now()
	err := e.upstream.Probe(ctx)
	c.mu.Lock()
	c.trials--
	if err != nil && !upstream.ReasonOf(err).Dial() {
		// The set is closing, or we cannot dial anybody: neither good nor bad.
		e.ejection.postpone(time.Now())
	}
	c.schedule()
	c.mu.Unlock()
	if err == nil {
		c.dialed(e, began)
	} else if reason := upstream.ReasonOf(err); reason.Dial() {
		c.dialFailed(e, began, reason)
	}
}

// suspect dials e alone, without a request that waits for it.
func (c *Cluster) suspect(e *endpoint) {
	c.mu.Lock()
	begin := !e.suspected && !e.ejection.ejected()
	if begin {
		e.suspected = true
	}
	c.mu.Unlock()
	if !begin {
		return
	}
	c.set.start(func(ctx context.Context) {
		began := time.Now()
		err := e.upstream.Probe(ctx)
		c.mu.Lock()
		e.suspected = false
		c.mu.Unlock()
		if reason := upstream.ReasonOf(err); reason.Dial() {
			c.dialFailed(e, began, reason)
		}
	})
}

// claim gives a doubted endpoint whose time is over to one request, which is
// its trial; nil when there is none.
func (c *Cluster) claim(now time.Time, tried []mesh.EndpointKey) *endpoint {
	if now.UnixNano() < c.nextReturn.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := range c.out {
		p := &e.opinion
		if !p.ejected() || p.onTrial || now.Before(p.until) || e.ejection.ejected() || !e.usableHealth() || slices.Contains(tried, e.key) {
			continue
		}
		p.onTrial = true
		c.schedule()
		return e
	}
	return nil
}

// schedule notes when the next trials are due. It needs mu.
func (c *Cluster) schedule() {
	trial, back := int64(math.MaxInt64), int64(math.MaxInt64)
	for e := range c.out {
		if !e.usableHealth() {
			continue
		}
		if x := &e.ejection; x.ejected() {
			if !x.onTrial {
				trial = min(trial, x.dueAt(c.availability.none()).UnixNano())
			}
			continue
		}
		if p := &e.opinion; p.ejected() && !p.onTrial {
			back = min(back, p.until.UnixNano())
		}
	}
	if c.trials >= maxTrials {
		// The end of one schedules anew.
		trial = math.MaxInt64
	}
	c.nextTrial.Store(trial)
	c.nextReturn.Store(back)
}
