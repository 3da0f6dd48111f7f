package refresh

import (
	"cmp"
	"slices"
	"time"
)

// postpone keeps r until due. Its pair is remembered, so there is room.
func (c *core) postpone(r Report, due time.Time, why deferral) {
	c.later[r.pair()] = delayed{report: r, due: due, why: why}
	if c.nextDue.IsZero() || due.Before(c.nextDue) {
		c.nextDue = due
	}
	c.out.deferred = append(c.out.deferred, why)
}

// due gives, and forgets, what is to be looked at again now, in the order of its due times.
func (c *core) due(now time.Time) []delayed {
	if c.nextDue.IsZero() || now.Before(c.nextDue) {
		return nil
	}
	var ready []delayed
	c.nextDue = time.Time{}
	for p, d := range c.later {
		if !now.Before(d.due) {
			ready = append(ready, d)
			delete(c.later, p)
		} else if c.nextDue.IsZero() || d.due.Before(c.nextDue) {
			c.nextDue = d.due
		}
	}
	slices.SortFunc(ready, func(a, b delayed) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.report.Node, b.report.Node), cmp.Compare(a.report.Cluster, b.report.Cluster))
	})
	return ready
}

// next is how long until due or start has something to do; false for never,
// unless something comes in.
func (c *core) next(now time.Time) (time.Duration, bool) {
	wait, some := time.Duration(0), false
	if !c.nextDue.IsZero() {
		wait, some = max(0, c.nextDue.Sub(now)), true
	}
	if len(c.queue) > 0 && c.reading < c.limits.MaxReading {
		if w := c.reads.wait(now); !some || w < wait {
			wait, some = w, true
		}
	}
	return wait, some
}
