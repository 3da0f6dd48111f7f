package chaos

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// logged is what the judge reads of a line of the access log.
type logged struct {
	Time     time.Time
	Client   string
	Protocol string
	Path     string
	Cluster  string
	Status   int
	Reason   upstream.Reason
	Error    string
	Seconds  float64
	Attempts []attempted
}

type attempted struct {
	Endpoint string
	Status   int
	Reason   upstream.Reason
	Seconds  float64
}

// late is how much later than its cause something may be noticed: a connection
// that was reset while it was idle is met by a request that comes right then.
const late = 750 * time.Millisecond

// cause is what explains a reason. An endpoint's reasons need one of deeds done
// to the request, or one of states, at the endpoint that the log names; other
// reasons need cluster to hold.
type cause struct {
	deeds, states []act
	cluster       func(*matter) bool
	// and must hold as well; nil for nothing more.
	and func(*matter) bool
}

// causes is the table: reason → what may explain it. A reason without an entry has no excuse here.
var causes = map[upstream.Reason]cause{
	upstream.ConnectRefused: {states: []act{refusing}},
	upstream.ConnectTimeout: {states: []act{silent}, and: (*matter).takesTime},
	// The end of a connection that has not come to its settings.
	upstream.ConnectFailed:      {states: []act{leaving, halfClosed, killed, refusing}},
	upstream.ProtocolError:      {deeds: []act{nonsense}, states: []act{garbled}},
	upstream.ResetBeforeHeaders: {deeds: []act{dropped}, states: []act{killed, leaving, halfClosed, refusing}},
	upstream.ResetMidBody:       {deeds: []act{cut}, states: []act{killed, refusing}, and: (*matter).answered},
	// A connection that winds up takes none of the streams that were on their way to it.
	upstream.StreamRefused:      {deeds: []act{refused}, states: []act{goneAway, spoilt, killed, refusing}, and: (*matter).http2},
	upstream.UpgradeFailed:      {deeds: []act{switched}},
	upstream.TryTimeout:         {deeds: []act{held, delayed}, states: []act{silent}, and: (*matter).overTry},
	upstream.Deadline:           {deeds: []act{held, delayed}, states: []act{silent}, and: (*matter).overDeadline},
	upstream.StreamLimit:        {states: []act{oneStream}, and: (*matter).manyConnections},
	upstream.BreakerConnections: {cluster: (*matter).manyConnections},
	upstream.BreakerRequests:    {cluster: (*matter).manyRequests},
	upstream.BreakerPending:     {cluster: func(m *matter) bool { return m.waiting() && m.manyPending() }},
	upstream.BreakerRetries:     {cluster: (*matter).lastAttemptFailed},
	upstream.AllEjected:         {cluster: (*matter).outage},
	upstream.FailFast:           {cluster: (*matter).outage},
	upstream.DeadlineInQueue:    {cluster: func(m *matter) bool { return m.waiting() && m.overDeadline() }},
	upstream.NoEndpoints:        {cluster: (*matter).empty},
	upstream.NoSuchService:      {cluster: (*matter).absent},
	upstream.DiscoveryPending:   {cluster: (*matter).unanswered},
	upstream.EndpointRemoved:    {and: (*matter).removed},
	upstream.ClientGone:         {cluster: (*matter).clientLeft},
}

// matter is one request before the judge.
type matter struct {
	*sent
	log   *logged
	facts facts
	// endpoint is that in question; "" where none is.
	endpoint string
	service  *service
}

// judge gives what is wrong with the reason of a request; "" for nothing.
func judge(s *sent, l *logged, f facts) string {
	m := &matter{sent: s, log: l, facts: f, service: f.service(s.service)}
	if end := l.Time.Add(time.Duration(l.Seconds * float64(time.Second))); m.clientLeft() && end.After(s.to) {
		// It went on without the client, until the proxy knew.
		longer := *s
		longer.to, m.sent = end, &longer
	}
	if why := m.consistent(); why != "" {
		return why
	}
	for i := range l.Attempts {
		a := &l.Attempts[i]
		if a.Reason == upstream.None {
			continue
		}
		m.endpoint = a.Endpoint
		if why := m.explain(a.Reason); why != "" {
			return fmt.Sprintf("attempt %d at %s: %s", i+1, a.Endpoint, why)
		}
	}
	if l.Reason == upstream.None {
		return ""
	}
	m.endpoint = m.blamed()
	return m.explain(l.Reason)
}

var reasonOnWire = regexp.MustCompile(`; layer=([a-z]+); reason=([a-z_]+)$`)

// consistent says whether client and log tell the same story.
func (m *matter) consistent() string {
	s, l := m.sent, m.log
	ours := l.Reason != upstream.None
	went := m.facts.done("", s.id, left)
	switch {
	case s.proxyStatus != "":
		match := reasonOnWire.FindStringSubmatch(s.proxyStatus)
		if match == nil {
			return "a Proxy-Status without layer and reason"
		}
		if reason := upstream.Reason(match[2]); reason != l.Reason || string(reason.Layer()) != match[1] {
			return fmt.Sprintf("%s %s on the wire, %s in the log", match[1], reason, l.Reason)
		}
		if cut := went && !s.ended; !cut && !strings.Contains(s.line, match[1]+": "+match[2]) {
			return fmt.Sprintf("the line %q does not have %s: %s", s.line, match[1], match[2])
		}
		return ""
	case s.ok && ours && !went:
		return fmt.Sprintf("the client has its answer, and the log says %s", l.Reason)
	case s.ok, went:
		return ""
	case !s.begun && s.kind != tcp:
		return "a failure without any word on the wire"
	case s.ended && ours && s.kind == tcp && m.own():
		// To the client an orderly end; what became of the other direction is for the log's reason to say.
		return ""
	case s.ended && ours:
		return fmt.Sprintf("an answer of the upstream's own, and the log says %s", l.Reason)
	case s.ended && !m.own():
		return "an answer of the upstream's own, which gave none such"
	case !s.ended && !ours:
		return "broken off, and the log has no reason"
	}
	return ""
}

// own tells whether the last endpoint gave a wrong answer by itself, in order.
func (m *matter) own() bool {
	if len(m.log.Attempts) == 0 {
		return false
	}
	last := m.log.Attempts[len(m.log.Attempts)-1].Endpoint
	if m.kind == tcp || m.kind == websocket {
		return m.facts.done(last, m.id, nonsense, failed) || m.facts.was(last, m.from.Add(-late), m.to.Add(late), leaving, halfClosed)
	}
	return m.facts.done(last, m.id, failed)
}

// blamed is the endpoint of the last attempt that failed for the reason, or of the last one.
func (m *matter) blamed() string {
	all := m.log.Attempts
	for _, a := range slices.Backward(all) {
		if a.Reason == m.log.Reason {
			return a.Endpoint
		}
	}
	if len(all) > 0 {
		return all[len(all)-1].Endpoint
	}
	return ""
}

func (m *matter) explain(r upstream.Reason) string {
	c, known := causes[r]
	if !known {
		return fmt.Sprintf("nothing here explains %s", r)
	}
	if c.cluster != nil {
		if !c.cluster(m) && !m.starved() {
			return fmt.Sprintf("the state of %s does not explain %s", m.service.name, r)
		}
		return ""
	}
	if c.and != nil && !c.and(m) {
		return fmt.Sprintf("%s at %s against the facts", r, m.endpoint)
	}
	if timed(r) && m.stalledIn(r) {
		return ""
	}
	if len(c.deeds)+len(c.states) == 0 || m.facts.done(m.endpoint, m.id, c.deeds...) || m.facts.was(m.endpoint, m.from.Add(-late), m.to.Add(late), c.states...) {
		return ""
	}
	return fmt.Sprintf("%s at %s, which did neither of %v %v", r, m.endpoint, c.deeds, c.states)
}

// starved tells whether the machine had no time for this process in a quarter of
// the time about the request: then healthy endpoints are out for their timeouts,
// queues fill, answers come too late, and the state of a service explains nothing.
func (m *matter) starved() bool {
	from := m.from.Add(-2 * failing)
	return m.facts.sum(machine, from, m.to, stalled) >= m.to.Sub(from)/4
}

// timed tells whether a reason is that of a time that is over.
func timed(r upstream.Reason) bool {
	return r == upstream.ConnectTimeout || r == upstream.TryTimeout || r == upstream.Deadline
}

// connecting is the connect-timeout of all services here.
const connecting = time.Second

// stalledIn tells whether the machine stood still in what a time limit counts. A
// request that joins a dial may do so when that has but a moment left.
func (m *matter) stalledIn(r upstream.Reason) bool {
	from := m.from
	if r == upstream.ConnectTimeout {
		from = from.Add(-connecting - margin)
	}
	return m.facts.was(machine, from, m.to, stalled)
}

func (m *matter) http2() bool { return m.service.protocol == http2c }

// takesTime: there are settings to wait for, or there was no time even for the kernel's part.
func (m *matter) takesTime() bool { return m.http2() || m.stalledIn(upstream.ConnectTimeout) }

func (m *matter) answered() bool   { return m.facts.done(m.endpoint, m.id, began) }
func (m *matter) clientLeft() bool { return m.facts.done("", m.id, left) }

// margin is how much earlier than told a time limit may be met: clocks of timers are coarse.
const margin = 60 * time.Millisecond

func (m *matter) overDeadline() bool {
	limit := m.deadline
	if t := m.service.timeout; t > 0 && (limit == 0 || t < limit) {
		limit = t
	}
	return limit > 0 && m.to.Sub(m.from) >= limit-margin
}

func (m *matter) overTry() bool {
	return m.service.perTry > 0 && m.to.Sub(m.from) >= m.service.perTry-margin
}

func (m *matter) lastAttemptFailed() bool {
	n := len(m.log.Attempts)
	return n > 0 && (m.log.Attempts[n-1].Reason != upstream.None || m.facts.done(m.log.Attempts[n-1].Endpoint, m.id, failed)) &&
		m.facts.active(m.service.name, m.from.Add(-late), m.to.Add(late)) > 3
}

func (m *matter) manyConnections() bool {
	if m.service.maxConnections == 0 {
		return false
	}
	n := 0
	for _, e := range m.service.peers {
		n += m.facts.count(e, m.from.Add(-late), m.to.Add(late), open)
		if m.facts.was(e, m.from.Add(-late), m.to.Add(late), refusing) {
			n++ // a dial that fails had its place too
		}
	}
	return n >= m.service.maxConnections
}

func (m *matter) manyRequests() bool {
	return m.service.maxRequests > 0 && m.facts.active(m.service.name, m.from.Add(-late), m.to.Add(late)) > m.service.maxRequests
}

func (m *matter) manyPending() bool {
	return m.service.maxPending > 0 && m.facts.active(m.service.name, m.from.Add(-late), m.to.Add(late)) > m.service.maxPending
}

// waiting: there was no usable endpoint at some time of the request.
func (m *matter) waiting() bool { return m.empty() || m.outage() }

// failing is for how long after a fault an endpoint may still be out: the
// longest back-off while none is usable, and a trial.
const failing = time.Second + late

// outage tells whether every endpoint that was surely listed may have been out when the request ended.
func (m *matter) outage() bool {
	unreachable := []act{refusing, timedOut}
	if m.http2() {
		unreachable = append(unreachable, silent, leaving, halfClosed, garbled, killed)
	}
	since := m.to.Add(-failing)
	if m.facts.was(machine, since, m.to, stalled) {
		// Trials came late.
		since = since.Add(-failing)
	}
	sure, some := m.facts.listed(m.service.name, since, m.to)
	for _, e := range sure {
		if !m.facts.was(e, since, m.to, unreachable...) {
			return false
		}
	}
	return some
}

func (m *matter) empty() bool {
	return m.facts.published(m.service.name, m.from, m.to, func(v *version) bool { return v.exists && len(v.addresses) == 0 })
}

func (m *matter) absent() bool {
	return m.facts.published(m.service.name, m.from, m.to, func(v *version) bool { return !v.exists })
}

func (m *matter) removed() bool {
	return m.endpoint != "" && m.facts.published(m.service.name, m.from, m.to, func(v *version) bool { return !slices.Contains(v.addresses, m.endpoint) })
}

func (m *matter) unanswered() bool {
	return m.facts.was(controlPlane, m.from.Add(-late), m.to, refusing)
}
