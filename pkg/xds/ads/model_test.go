package ads_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
)

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// model runs a Stream, the store and a naive client side by side.
type model struct {
	t      fataler
	in     []byte
	log    []string
	failed bool
	now    time.Time

	truth   *truth
	key     mesh.View
	own     map[mesh.ResourceName]mesh.Resource
	reader  *snapshot.Reader
	oldView snapshot.View
	config  ads.Config
	streams int
	s       *ads.Stream
	client  *client
	// slow: the transport does not take responses by itself.
	slow, handed bool
	check        checks
}

func runModel(t fataler, data []byte) {
	t.Helper()
	m := &model{t: t, in: data, now: time.Unix(1000, 0)}
	defer func() {
		if p := recover(); p != nil {
			if !m.failed {
				m.t.Logf("panic after:\n  %s", strings.Join(m.log[max(0, len(m.log)-60):], "\n  "))
			}
			panic(p)
		}
	}()
	m.setUp()
	for len(m.in) > 0 {
		m.step()
		m.verify()
	}
	m.finish()
}

// pick takes a byte of the input for a choice of n; 0 when there is none left.
func (m *model) pick(n int) int {
	if len(m.in) == 0 {
		return 0
	}
	b := m.in[0]
	m.in = m.in[1:]
	return int(b) % n
}

func (m *model) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	m.failed = true
	m.t.Fatalf("%s\nafter:\n  %s", fmt.Sprintf(format, args...), strings.Join(m.log[max(0, len(m.log)-60):], "\n  "))
}

func (m *model) setUp() {
	m.client = newClient(m.pick(2) == 0, m.pick(2) == 1)
	m.truth = newTruth(snapshot.Config{LogLimit: []int{1000, 16, 5}[m.pick(3)]})
	m.key = mesh.View{Listeners: mesh.ListenersAPI, Zone: []string{"a", ""}[m.pick(2)]}
	m.own = map[mesh.ResourceName]mesh.Resource{}
	var own []mesh.Resource
	if m.pick(2) == 1 {
		r := resource(mesh.TypeListener, "A", 9, 0)
		m.own[mesh.ResourceName{Type: r.Type, Name: r.Name}] = r
		own = append(own, r)
	}
	m.config = ads.Config{
		Delta: m.client.delta, Policy: ack.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 5 * time.Second},
		MaxNames: []int{1000, 8}[m.pick(2)], MaxBytes: []int{0, 250}[m.pick(2)],
	}
	m.reader = m.truth.store.Open(m.key, snapshot.NewOwn(own))
	m.oldView = m.reader.View()
	m.open()
}

func (m *model) open() {
	m.streams++
	m.config.NoncePrefix = fmt.Sprintf("s%d.", m.streams)
	m.s = ads.New(m.config, m.reader.View(), m.now)
	m.handed = false
	m.check = newChecks()
	m.note("open %s delta=%v", m.config.NoncePrefix, m.config.Delta)
}

func (m *model) step() {
	switch m.pick(16) {
	case 0, 1:
		m.store()
	case 2, 3, 4:
		m.request()
	case 5, 6, 7:
		m.answer(true)
	case 8, 9:
		m.answer(false)
	case 10:
		m.pass()
	case 11:
		m.resend()
	case 12:
		m.slow = !m.slow
		m.note("slow %v", m.slow)
	case 13:
		m.published(m.oldView)
	case 14:
		m.reconnect()
	case 15:
		m.published(m.reader.View())
	}
	m.pump()
}

// store publishes one to three changes; the stream hears of them now or later.
func (m *model) store() {
	var u mesh.Update
	seen := map[mesh.ResourceName]bool{}
	for range 1 + m.pick(3) {
		n := mesh.ResourceName{Type: allTypes[m.pick(len(allTypes))], Name: allNames[m.pick(len(allNames))]}
		if n.Type == mesh.TypeEndpoint && n.Name == "E" {
			n.Name = "shared"
		}
		what := m.pick(16)
		if seen[n] {
			continue
		}
		seen[n] = true
		if what < 5 {
			u.Remove = append(u.Remove, mesh.Removal{ResourceName: n})
			m.note("remove %s %s", n.Type.Short(), n.Name)
			continue
		}
		label, kind := what%3, 0
		if what > 11 {
			kind = 1 + m.pick(4)
		}
		u.Put = append(u.Put, resource(n.Type, n.Name, label, kind))
		m.note("put %s %s label=%d kind=%d", n.Type.Short(), n.Name, label, kind)
	}
	m.truth.publish(u, m.now)
	for n := range seen {
		m.check.changed(n)
	}
	if m.pick(3) > 0 {
		m.published(m.reader.View())
	}
}

func (m *model) published(v snapshot.View) {
	m.note("published %d", v.Generation())
	if m.pick(4) == 0 {
		m.oldView = m.reader.View()
	}
	before := m.s.View().Generation()
	m.s.Published(v)
	if m.s.View().Generation() == m.reader.View().Generation() {
		m.check.heard()
	}
	if m.s.View().Generation() < before {
		m.fail("the view went back from %d to %d", before, m.s.View().Generation())
	}
}

// names picks up to three, with duplicates, and perhaps the wildcard.
func (m *model) names() []string {
	var out []string
	for range m.pick(4) {
		if n := m.pick(len(allNames) + 3); n < len(allNames) {
			out = append(out, allNames[n])
		} else {
			out = append(out, []string{"*", "missing", "shared"}[n-len(allNames)])
		}
	}
	return out
}

// request makes a request that answers nothing, or only pretends to.
func (m *model) request() {
	t := allTypes[m.pick(len(allTypes))]
	ct := m.client.typ(t)
	r := ads.Request{Type: t}
	switch m.pick(8) {
	case 0:
		r.Nonce = "foreign"
	case 1:
		r.Nonce = m.config.NoncePrefix + "0"
	case 2:
		r.Nonce = m.config.NoncePrefix + fmt.Sprint(m.pick(40))
	case 3:
		r.Nonce = m.config.NoncePrefix + "99999999999999999999999"
	case 4:
		r.Nonce, r.Refused, r.Message = "s0.1", true, "refused out of the blue"
	case 5:
		r.Nonce = ""
	default:
		if !m.client.delta && len(ct.queue) == 0 {
			r.Nonce = ct.last
		}
	}
	if slices.ContainsFunc(ct.queue, func(q *ads.Response) bool { return q.Nonce == r.Nonce }) {
		r.Nonce = "" // an answer is answer's business
	}
	if m.client.delta {
		r.Subscribe, r.Unsubscribe = m.names(), m.names()
		if m.pick(3) == 0 {
			r.Initial = m.initial(ct, t)
		}
	} else {
		r.Names = m.names()
	}
	m.send(r)
}

// initial claims to hold what the client holds, or would like to.
func (m *model) initial(ct *clientType, t mesh.Type) map[string]string {
	out := map[string]string{}
	for name, v := range ct.held {
		out[name] = string(v)
	}
	for _, name := range m.names() {
		switch m.pick(3) {
		case 0:
			out[name] = "other"
		case 1:
			out[name] = string(m.current(mesh.ResourceName{Type: t, Name: name}))
		case 2:
			out[name] = ""
		}
	}
	return out
}

func (m *model) current(n mesh.ResourceName) mesh.Version {
	return m.truth.version(m.s.View().Generation(), m.key, m.own, n)
}

// send gives a request to both sides.
func (m *model) send(r ads.Request) ads.Outcome {
	ct := m.client.typ(r.Type)
	first := !ct.known
	void := !m.client.delta && !first && r.Nonce != m.check.lastNonce(r.Type)
	quiet := !m.handed
	if void && quiet {
		stream := m.streams
		if m.pump(); m.streams != stream {
			return ads.Outcome{}
		}
		quiet = !m.handed
	}
	m.note("request %s nonce=%q refused=%v names=%q +%q -%q initial=%v", r.Type.Short(), r.Nonce, r.Refused, r.Names, r.Subscribe, r.Unsubscribe, r.Initial)
	if first && r.Refused && len(r.Names)+len(r.Subscribe) == 0 {
		// A refusal of what was never asked for is no request.
		if out := m.s.Request(r, m.now); out.Answer != ads.AnswerOld {
			m.fail("answer %d to a NACK out of the blue", out.Answer)
		}
		return ads.Outcome{}
	}
	ct.known = true
	if m.client.delta {
		if first && m.client.held(r) {
			m.claim(ct, r)
		}
		m.check.asked(r, ct, first)
		ct.subscribe(r, first)
	} else if !void {
		ct.rename(r.Names)
		m.check.renamed(r.Type, ct)
		ct.settle()
	}
	out := m.s.Request(r, m.now)
	m.check.interest(m.s.TakeInterest())
	if void && quiet {
		if got := m.s.Next(m.now); got != nil {
			m.fail("a request with an old nonce is answered: %s %s", got.Type.Short(), got.Nonce)
		}
	}
	return out
}

// held tells whether the request says what the client holds.
func (c *client) held(r ads.Request) bool { return len(r.Initial) > 0 }

// claim makes the first request's initial versions true.
func (m *model) claim(ct *clientType, r ads.Request) {
	clear(ct.held)
	for name, v := range r.Initial {
		if v != "" && name != "*" {
			ct.held[name] = mesh.Version(v)
		}
	}
}

// answer acknowledges or refuses the oldest response of a type.
func (m *model) answer(ackIt bool) {
	t := allTypes[m.pick(len(allTypes))]
	for range allTypes {
		if ct := m.client.types[t]; ct != nil && len(ct.queue) > 0 {
			break
		}
		t = allTypes[(slices.Index(allTypes[:], t)+1)%len(allTypes)]
	}
	m.answerType(t, ackIt, m.pick(6) == 0)
}

func (m *model) answerType(t mesh.Type, ackIt, change bool) {
	ct := m.client.types[t]
	if ct == nil || len(ct.queue) == 0 {
		return
	}
	r := ct.queue[0]
	ct.queue = ct.queue[1:]
	answer := ads.Request{Type: t, Nonce: r.Nonce, Names: ct.intent.list()}
	if m.client.delta {
		answer.Names = nil
	}
	if change && m.client.delta {
		answer.Subscribe, answer.Unsubscribe = m.names(), m.names()
	} else if change {
		answer.Names = m.names()
	}
	if ackIt {
		m.note("ack %s %s", t.Short(), r.Nonce)
		m.client.apply(r)
	} else {
		m.note("nack %s %s", t.Short(), r.Nonce)
		answer.Refused, answer.Message = true, "no"
		if m.client.partial {
			m.client.applySome(r)
		}
	}
	newest := r.Nonce == m.check.lastNonce(t)
	m.check.answered(r, ackIt)
	out := m.send(answer)
	want := ads.AnswerOld
	switch {
	case newest && ackIt:
		want = ads.Acked
	case newest:
		want = ads.Nacked
	}
	if out.Answer != want {
		m.fail("the answer to %s counts as %d, want %d", r.Nonce, out.Answer, want)
	}
}

// pass lets time go by.
func (m *model) pass() {
	d := []time.Duration{0, 100 * time.Millisecond, time.Second, 3 * time.Second, 6 * time.Second, 11 * time.Second}[m.pick(6)]
	m.now = m.now.Add(d)
	m.note("pass %v", d)
	m.published(m.reader.View())
	m.tick()
}

func (m *model) tick() {
	reason := m.s.Tick(m.now)
	if reason == "" {
		return
	}
	m.note("closed: %s", reason)
	m.check.justified(m, reason)
	m.reset()
}

func (m *model) resend() {
	if m.pick(4) == 0 {
		m.note("resend all")
		if m.s.ResendAll("", m.now) {
			m.check.resentAll()
		}
		return
	}
	n := mesh.ResourceName{Type: allTypes[m.pick(len(allTypes))], Name: allNames[m.pick(len(allNames))]}
	m.note("resend %s %s", n.Type.Short(), n.Name)
	if m.s.Resend(n.Type, mesh.Intern(n.Name), m.now) {
		m.check.resent(n)
	}
}

func (m *model) reconnect() {
	m.note("reconnect")
	m.reset()
}

// reset opens the next stream, and asks for all that was wanted on the last.
func (m *model) reset() {
	m.client.disconnect()
	m.open()
	for _, t := range allTypes {
		ct := m.client.types[t]
		if ct == nil || !ct.intent.wildcard && len(ct.intent.names) == 0 {
			continue
		}
		r := ads.Request{Type: t}
		if m.client.delta {
			r.Subscribe, r.Initial = ct.intent.list(), map[string]string{}
			for name, v := range ct.held {
				r.Initial[name] = string(v)
			}
		} else {
			r.Names = ct.intent.list()
		}
		m.send(r)
	}
	if m.config.MaxNames < 20 && m.s.Tick(m.now) == ads.CloseTooManyNames {
		// Such a client never gets anywhere; let it want less.
		m.client.types = map[mesh.Type]*clientType{}
		m.reset()
	}
}

// pump sends what is to be sent.
func (m *model) pump() {
	for range 1000 {
		if m.handed && !m.slow {
			m.s.Sent()
			m.handed = false
		}
		if m.s.Tick(m.now) != "" {
			m.tick()
			continue
		}
		r := m.s.Next(m.now)
		if r == nil {
			return
		}
		m.note("  response %s", describe(r))
		if m.handed {
			m.fail("a second response is handed out")
		}
		m.check.response(m, r)
		ct := m.client.types[r.Type]
		ct.queue, ct.last = append(ct.queue, r), r.Nonce
		m.handed = true
	}
	m.fail("the stream never comes to rest")
}

func describe(r *ads.Response) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Type.Short(), r.Nonce)
	for _, x := range r.Resources {
		fmt.Fprintf(&b, " +%s@%s", x.Name.Value(), x.Value())
	}
	for _, name := range r.Removed {
		fmt.Fprintf(&b, " -%s", name)
	}
	if r.Probe {
		b.WriteString(" (probe)")
	}
	return b.String()
}

// finish lets the client acknowledge everything until nothing comes any more,
// and compares both sides: first all that was not refused, and once what was
// refused has changed, everything.
func (m *model) finish() {
	m.note("finish")
	m.slow = false
	m.settle()
	m.converged(false)
	for _, t := range m.s.Acks().Types() {
		if m.s.Acks().State(t, m.now, m.s.View()).State != ack.Rejected {
			continue
		}
		var u mesh.Update
		for _, name := range append(allNames[:], "missing", "shared", "other") {
			u.Put = append(u.Put, resource(t, name, 7, 0))
		}
		m.note("change all %s", t.Short())
		m.truth.publish(u, m.now)
		for _, r := range u.Put {
			m.check.changed(mesh.ResourceName{Type: t, Name: r.Name})
		}
		for n := range m.own { // never changes, so only asking again helps
			if n.Type == t && m.s.Resend(t, mesh.Intern(n.Name), m.now) {
				m.check.resent(n)
			}
		}
	}
	m.settle()
	m.converged(true)
}

func (m *model) settle() {
	for range 200 {
		m.published(m.reader.View())
		m.pump()
		busy := false
		for _, t := range slices.Sorted(maps.Keys(m.client.types)) {
			for len(m.client.types[t].queue) > 0 {
				busy = true
				m.answerType(t, true, false)
				m.pump()
			}
			if ct := m.client.types[t]; !m.client.delta && ct.known && !sameSubscription(ct) {
				busy = true
				m.send(ads.Request{Type: t, Nonce: m.check.lastNonce(t), Names: ct.intent.list()})
				m.pump()
			}
		}
		if !busy {
			return
		}
	}
	m.fail("client and server never come to rest")
}

func sameSubscription(ct *clientType) bool {
	return ct.intent.wildcard == ct.effective.wildcard && maps.Equal(ct.intent.names, ct.effective.names)
}
