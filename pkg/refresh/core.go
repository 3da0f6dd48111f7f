package refresh

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// notAService is the reason for a cluster that no service makes: static, or invented.
const notAService = "the cluster is not made from a service"

// pair is what a verdict is about.
type pair struct {
	node    mesh.NodeID
	cluster string
}

// deferral says why a report has to wait; also the metric's label.
type deferral string

const (
	backOff    deferral = "back-off"    // the node was sent this cluster just now
	nodeBudget deferral = "node-budget" // the node's reports cause too much
	readBudget deferral = "read-budget" // too many live reads in all
)

// core decides. It is pure: time comes in as now, what is to be done goes out
// through take. Its owner calls it from one goroutine.
type core struct {
	limits  Limits
	reads   bucket
	reading int
	nodes   map[mesh.NodeID]*nodeState
	// strangers is the budget and the room that all pairs share whose node was never seen
	// to subscribe: their ids cost nothing to invent.
	strangers nodeState
	pairs     map[pair]*pairState
	services  map[mesh.Key]*serviceState
	// queue holds the services that wait for a live read, first come first served, each once.
	queue []mesh.Key
	// later holds what is to be looked at again at its due time; nextDue is
	// not after the first of these.
	later   map[pair]delayed
	nextDue time.Time
	sweptAt time.Time
	out     effects
}

// effects is what the core wants done.
type effects struct {
	resend   []pair
	read     []mesh.Key
	findings []finding
	deferred []deferral
	// dropped counts the reports that there was no room to remember.
	dropped int
}

// finding is a verdict on a report.
type finding struct {
	Report
	verdict Verdict
	// reason says why an Unverified could not be verified; else "".
	reason string
	// news is true when the pair's verdict changed, or names an endpoint that it did not name before.
	news bool
}

type nodeState struct {
	budget bucket
	pairs  int
}

type pairState struct {
	seenAt  time.Time
	verdict Verdict
	named   []netip.AddrPort // at most maxNamed
	// stranger is true while the node was never seen to subscribe to the cluster.
	stranger bool
	resends  int // in a row
	// resendAfter is when the next resend is allowed.
	resendAfter time.Time
}

// serviceState is a service that is read, waits to be, or was a moment ago.
type serviceState struct {
	queued, reading, counted bool
	startedAt                time.Time
	last                     outcome
	waiters                  map[pair]Report
}

// outcome is what a live read showed. The zero value stands for none yet.
type outcome struct {
	done, changed bool
	err           error
}

type delayed struct {
	report Report
	due    time.Time
	why    deferral
}

func newCore(l Limits, now time.Time) *core {
	return &core{
		limits:    l,
		reads:     newBucket(l.ReadsPerSecond, l.ReadBurst, now),
		nodes:     map[mesh.NodeID]*nodeState{},
		strangers: nodeState{budget: newBucket(l.NodePerSecond, l.NodeBurst, now)},
		pairs:     map[pair]*pairState{},
		services:  map[mesh.Key]*serviceState{},
		later:     map[pair]delayed{},
		sweptAt:   now,
	}
}

// take gives what is to be done since the last call.
func (c *core) take() effects {
	out := c.out
	c.out = effects{}
	return out
}

// judge takes a new report, with what the node holds and the service that the
// cluster was made from; hasService is false when there is none.
func (c *core) judge(now time.Time, r Report, h Holding, service mesh.Key, hasService bool) {
	c.sweep(now)
	p := r.pair()
	if h.Stranger && !hasService {
		// Whoever reports it, no remedy exists, and anybody could fill the memory with it.
		c.conclude(now, r, Unverified, notAService)
		return
	}
	m := c.remember(now, p, h.Stranger)
	if m == nil {
		c.out.dropped++
		return
	}
	if d, ok := c.later[p]; ok {
		delete(c.later, p)
		r = d.report.add(r)
	}
	switch {
	case h.Behind:
		c.nodeBehind(now, m, r, service)
	case !hasService:
		m.resends = 0
		c.conclude(now, r, Unverified, notAService)
	default:
		m.resends = 0
		c.verify(now, m, r, service)
	}
}

// judgeAgain is judge for a report that had to wait. A node that caught up
// since its resend is healed: its old failures say nothing about what it holds now.
func (c *core) judgeAgain(now time.Time, d delayed, h Holding, service mesh.Key, hasService bool) {
	if d.why == backOff && !h.Behind {
		return
	}
	c.judge(now, d.report, h, service, hasService)
}

// nodeBehind has the cluster sent again, within the node's budget and back-off.
func (c *core) nodeBehind(now time.Time, m *pairState, r Report, service mesh.Key) {
	if s := c.services[service]; s != nil && s.last.changed && now.Sub(s.startedAt) < c.limits.Share {
		// The store has just learned it: the publish is on its way, and a
		// thousand resends beside it would only delay it.
		c.conclude(now, r, StoreBehind, "")
		return
	}
	if now.Before(m.resendAfter) {
		c.postpone(r, m.resendAfter, backOff)
		return
	}
	n := c.of(m, r.Node)
	if !n.budget.take(now) {
		c.postpone(r, now.Add(n.budget.wait(now)), nodeBudget)
		return
	}
	m.resendAfter = now.Add(min(c.limits.MaxResendBackOff, c.limits.ResendBackOff<<min(m.resends, 16)))
	m.resends++
	c.out.resend = append(c.out.resend, r.pair())
	c.conclude(now, r, NodeBehind, "")
}

// verify answers from a live read: one of a moment ago, one that is already
// asked for, or a new one.
func (c *core) verify(now time.Time, m *pairState, r Report, service mesh.Key) {
	s := c.services[service]
	if s == nil {
		s = &serviceState{waiters: map[pair]Report{}}
		c.services[service] = s
	}
	if s.last.done && !s.reading && !s.queued && now.Sub(s.startedAt) < c.limits.Share {
		c.answer(now, r, s.last)
		return
	}
	p := r.pair()
	if old, ok := s.waiters[p]; ok {
		s.waiters[p] = old.add(r)
		return
	}
	if !s.reading && !s.queued {
		n := c.of(m, r.Node)
		if !n.budget.take(now) {
			c.postpone(r, now.Add(n.budget.wait(now)), nodeBudget)
			return
		}
		s.queued, s.counted = true, false
		c.queue = append(c.queue, service)
	}
	s.waiters[p] = r
}

// start lets queued live reads begin as far as the budget goes.
func (c *core) start(now time.Time) {
	for len(c.queue) > 0 && c.reading < c.limits.MaxReading && c.reads.take(now) {
		service := c.queue[0]
		c.queue = c.queue[1:]
		s := c.services[service]
		s.queued, s.reading, s.startedAt = false, true, now
		c.reading++
		c.out.read = append(c.out.read, service)
	}
	for _, service := range c.queue {
		if s := c.services[service]; !s.counted {
			s.counted = true
			c.out.deferred = append(c.out.deferred, readBudget)
		}
	}
}

// verified takes the outcome of a live read that start asked for.
func (c *core) verified(now time.Time, service mesh.Key, o outcome) {
	s := c.services[service]
	c.reading--
	o.done = true
	s.reading, s.last = false, o
	waiters := make([]Report, 0, len(s.waiters))
	for _, r := range s.waiters {
		waiters = append(waiters, r)
	}
	clear(s.waiters)
	slices.SortFunc(waiters, func(a, b Report) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Cluster, b.Cluster))
	})
	for _, r := range waiters {
		c.answer(now, r, o)
	}
}

func (c *core) answer(now time.Time, r Report, o outcome) {
	switch {
	case o.err != nil:
		c.conclude(now, r, Unverified, o.err.Error())
	case o.changed:
		c.conclude(now, r, StoreBehind, "")
	default:
		c.conclude(now, r, Current, "")
	}
}

func (c *core) conclude(now time.Time, r Report, v Verdict, reason string) {
	f := finding{Report: r, verdict: v, reason: reason}
	m := c.pairs[r.pair()]
	if m == nil { // swept while its read was under way
		f.news = true
		c.out.findings = append(c.out.findings, f)
		return
	}
	if m.verdict != v {
		f.news, m.verdict, m.named = true, v, nil
	}
	for _, e := range r.Endpoints {
		if !slices.Contains(m.named, e.Address) && len(m.named) < maxNamed {
			f.news = true
			m.named = append(m.named, e.Address)
		}
	}
	m.seenAt = now
	c.out.findings = append(c.out.findings, f)
}
