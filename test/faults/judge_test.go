package faults

import (
	"fmt"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
)

// verdict is what a run did to one client.
type verdict struct {
	client kind
	// recovery is the time from the fault's effect to right routing, 0 where the
	// effect found it right; recovered tells whether it came at all.
	recovery  time.Duration
	recovered bool
	// sent, failed and wrong count requests since the fault's beginning, late those
	// that failed or were wrong although the bound was over.
	sent, failed, wrong, late int
	// failures are the first few of the kinds of failures, and the endpoints that never answered.
	failures []string
	counts   counts
	// dead is how many instances were killed.
	dead  int
	audit string
	// blind is for how long in all the audit called the node fresh while its traffic was wrong.
	blind time.Duration
}

// moments are the times of a run that a verdict needs.
type moments struct {
	// begin is when the fault began, changed when endpoints changed last, effect from when recovery counts.
	begin, changed, effect time.Time
	bound                  time.Duration
}

// bad tells whether a request failed, or was answered by the wrong instance.
func (w *world) bad(o outcome) bool { return o.failure != "" || w.fleet.wrong(echo, o.answer, o.began) }

// rightSince gives when a client's routing became right: its last bad request was
// over, and each endpoint of now had answered. Those that have not are missing.
func (w *world) rightSince(c *client, m moments) (right time.Time, missing map[string]bool) {
	endpoints, _ := w.fleet.now(echo)
	missing = make(map[string]bool)
	for _, e := range endpoints {
		missing[e.name] = true
	}
	right = m.changed
	for _, o := range c.load.since(m.begin) {
		switch {
		case w.bad(o):
			right = o.ended
		case missing[o.answer] && o.began.After(m.changed):
			delete(missing, o.answer)
			right = o.ended
		}
	}
	return right, missing
}

// judge makes the verdict on a client from everything until now.
func (w *world) judge(c *client, audit *watch, m moments) verdict {
	v := verdict{client: c.kind, dead: w.fleet.deaths(), audit: audit.story(c.kind.node(), m.begin)}
	right, missing := w.rightSince(c, m)
	if v.recovered = len(missing) == 0; v.recovered {
		v.recovery = max(0, right.Sub(m.effect))
	}
	for name := range missing {
		v.failures = append(v.failures, name+", an endpoint, never answered")
	}
	kinds := make(map[string]bool)
	for _, o := range c.load.since(m.begin) {
		v.sent++
		if !w.bad(o) {
			continue
		}
		if o.began.Sub(m.effect) > m.bound {
			v.late++
		}
		if o.failure == "" {
			v.wrong++
			continue
		}
		v.failed++
		if !kinds[o.failure] && len(kinds) < 4 {
			kinds[o.failure] = true
			v.failures = append(v.failures, fmt.Sprintf("after %.2f s, for %.2f s: %s", o.began.Sub(m.begin).Seconds(), o.ended.Sub(o.began).Seconds(), o.failure))
		}
	}
	v.blind = blindness(audit, c.kind.node(), m.changed, right)
	return v
}

// blindness gives for how long between two times, in all, the audit called a node fresh.
func blindness(audit *watch, node string, from, right time.Time) (sum time.Duration) {
	at, states := audit.of(node, from)
	for i, state := range states {
		if state == ack.Fresh && at[i].Before(right) {
			sum += pollPeriod
		}
	}
	return sum
}
