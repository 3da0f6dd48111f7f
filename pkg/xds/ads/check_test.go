package ads_test

import (
	"slices"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
)

// checks is what must be remembered of one stream to judge its responses.
type checks struct {
	nonces map[string]bool
	types  map[mesh.Type]*typeChecks
	// woken: what the stream wants to be woken for, by its own words.
	woken map[ads.InterestChange]bool
	// unheard are published changes that the stream has not heard of.
	unheard []mesh.ResourceName
}

type typeChecks struct {
	last string
	// waiting: the last response is not answered.
	waiting bool
	// hurried: something may overtake it.
	hurried bool
	// underway: names that it carries, or a response that it overtook.
	underway map[string]bool
	// refused: name → what was refused, unless it changed or was asked for since.
	refused map[string]refusedVersion
	// moved: something changed or was asked for since the last response; touched: what.
	moved   bool
	touched map[string]bool
	// all: everything was asked for since the last response.
	all bool
}

type refusedVersion struct {
	version mesh.Version
	nonce   string
}

func newChecks() checks {
	return checks{nonces: map[string]bool{}, types: map[mesh.Type]*typeChecks{}, woken: map[ads.InterestChange]bool{}}
}

func (c *checks) typ(t mesh.Type) *typeChecks {
	if c.types[t] == nil {
		c.types[t] = &typeChecks{refused: map[string]refusedVersion{}, touched: map[string]bool{}, underway: map[string]bool{}}
	}
	return c.types[t]
}

func (c *checks) lastNonce(t mesh.Type) string { return c.typ(t).last }

// forgive lets a refused name go out again, and what was refused with it.
func (tc *typeChecks) forgive(name string) {
	tc.moved, tc.touched[name] = true, true
	r, ok := tc.refused[name]
	if !ok {
		return
	}
	for other, o := range tc.refused {
		if o.nonce == r.nonce {
			delete(tc.refused, other)
		}
	}
}

func (tc *typeChecks) forgiveAll() {
	tc.moved, tc.all = true, true
	clear(tc.refused)
}

// changed is called when a change is published, and heard when the stream hears of it.
func (c *checks) changed(n mesh.ResourceName) { c.unheard = append(c.unheard, n) }

func (c *checks) heard() {
	c.heardSome()
	c.unheard = nil
}

// heardSome is called when the stream hears of some changes, no matter which.
func (c *checks) heardSome() {
	for _, n := range c.unheard {
		c.typ(n.Type).forgive(n.Name)
	}
}

func (c *checks) resent(n mesh.ResourceName) {
	tc := c.typ(n.Type)
	tc.hurried = true
	tc.forgive(n.Name)
}

func (c *checks) resentAll() {
	for _, tc := range c.types {
		tc.hurried = true
		tc.forgiveAll()
	}
}

// asked is called before the subscription changes.
func (c *checks) asked(r ads.Request, ct *clientType, first bool) {
	tc := c.typ(r.Type)
	for i, name := range slices.Concat(r.Subscribe, r.Unsubscribe) {
		if i >= len(r.Subscribe) && name != "*" && !ct.effective.names[name] && !slices.Contains(r.Subscribe, name) {
			continue // a phantom: it changes nothing
		}
		tc.forgive(name)
		if name == "*" {
			tc.forgiveAll()
		}
		// What is asked for while it is on its way was dropped before.
		tc.hurried = tc.hurried || ct.effective.wants(name) || name == "*" || tc.underway[name]
	}
	// "X" twice in one request is a subscription and a repeated one.
	for i, name := range r.Subscribe {
		tc.hurried = tc.hurried || slices.Contains(r.Subscribe[:i], name)
	}
	tc.moved = tc.moved || first
}

// overlooked is called for a void request: what it drops may go out again.
func (c *checks) overlooked(r ads.Request, ct *clientType) {
	tc := c.typ(r.Type)
	if !tc.waiting || r.Nonce != "" && !c.nonces[r.Nonce] || slices.Contains(r.Names, "*") || !ct.explicit && len(r.Names) == 0 {
		return
	}
	for name := range ct.effective.names {
		if !slices.Contains(r.Names, name) {
			tc.forgive(name)
		}
	}
	if ct.effective.wildcard {
		tc.forgiveAll()
	}
}

// renamed is called between the change of the intent and its taking effect.
func (c *checks) renamed(t mesh.Type, ct *clientType) {
	tc := c.typ(t)
	for name := range ct.intent.names {
		if !ct.effective.names[name] {
			tc.forgive(name)
		}
	}
	if ct.intent.wildcard != ct.effective.wildcard {
		tc.forgiveAll()
	}
}

func (c *checks) answered(r *ads.Response, ackIt bool) {
	tc := c.typ(r.Type)
	if r.Nonce != tc.last {
		return
	}
	tc.waiting = false
	clear(tc.underway)
	if ackIt {
		return
	}
	for _, b := range r.Resources {
		if name := b.Name.Value(); !tc.touched[name] && !tc.all {
			tc.refused[name] = refusedVersion{b.Version, r.Nonce}
		}
	}
}

func (c *checks) interest(changes []ads.InterestChange) {
	for _, ch := range changes {
		on := ch.On
		ch.On = true
		if on {
			c.woken[ch] = true
		} else {
			delete(c.woken, ch)
		}
	}
}

// response judges a response before the client gets it.
func (c *checks) response(m *model, r *ads.Response) {
	ct := m.client.types[r.Type]
	if ct == nil || !ct.known {
		m.fail("a response of type %s, which was never requested", r.Type)
	}
	if c.nonces[r.Nonce] || r.Nonce == "" {
		m.fail("nonce %q came before", r.Nonce)
	}
	c.nonces[r.Nonce] = true
	tc := c.typ(r.Type)
	if tc.waiting && !tc.hurried {
		m.fail("%s %s overtakes a response that waits for its answer", r.Type.Short(), r.Nonce)
	}
	c.content(m, r, ct)
	c.refusals(m, r, tc)
	tc.last, tc.waiting, tc.hurried, tc.moved, tc.all = r.Nonce, true, false, false, false
	clear(tc.touched)
	for _, b := range r.Resources {
		tc.underway[b.Name.Value()] = true
	}
	for _, name := range r.Removed {
		tc.underway[name] = true
	}
	if r.Type == mesh.TypeCluster {
		for _, b := range r.Resources {
			for _, n := range m.s.View().FollowedBy(r.Type, b.Name) {
				c.typ(n.Type).forgive(n.Name)
			}
		}
	}
}

func (c *checks) content(m *model, r *ads.Response, ct *clientType) {
	seen := map[string]bool{}
	for _, b := range r.Resources {
		name := b.Name.Value()
		if seen[name] {
			m.fail("%s is twice in a response", name)
		}
		seen[name] = true
		if !ct.effective.wants(name) {
			m.fail("%s %s is sent and was not subscribed to", r.Type.Short(), name)
		}
		want := m.current(mesh.ResourceName{Type: r.Type, Name: name})
		if got := mesh.VersionOf(b.Value()); got != want || b.Version != want {
			m.fail("%s %s is sent at %s (version %s), want %s", r.Type.Short(), name, got, b.Version, want)
		}
	}
	for _, name := range r.Removed {
		if seen[name] {
			m.fail("%s is twice in a response", name)
		}
		seen[name] = true
		if m.current(mesh.ResourceName{Type: r.Type, Name: name}) != "" {
			m.fail("%s %s is said to be removed, and exists", r.Type.Short(), name)
		}
		if !m.client.delta || !ct.effective.wants(name) {
			m.fail("%s %s is said to be removed to one who does not ask", r.Type.Short(), name)
		}
	}
	if whole(m.client.delta, r.Type) {
		for _, name := range m.existing(r.Type, ct) {
			if !seen[name] {
				m.fail("%s lacks %s", r.Type.Short(), name)
			}
		}
	}
	if m.config.MaxBytes > 0 && !whole(m.client.delta, r.Type) && len(r.Resources) > 1 {
		size := 0
		for _, b := range r.Resources {
			size += len(b.Delta())
		}
		if size > m.config.MaxBytes {
			m.fail("a response of %d bytes, limit %d", size, m.config.MaxBytes)
		}
	}
}

// existing gives the names that the client subscribes to and that exist for it.
func (m *model) existing(t mesh.Type, ct *clientType) []string {
	var out []string
	for name := range m.candidates(t) {
		if ct.effective.wants(name) && m.current(mesh.ResourceName{Type: t, Name: name}) != "" {
			out = append(out, name)
		}
	}
	return out
}

// candidates are all names that the store, the node itself or the client ever named.
func (m *model) candidates(t mesh.Type) map[string]bool {
	out := map[string]bool{}
	for name := range m.truth.ever[t] {
		out[name] = true
	}
	for n := range m.own {
		if n.Type == t {
			out[n.Name] = true
		}
	}
	if ct := m.client.types[t]; ct != nil {
		for name := range ct.held {
			out[name] = true
		}
		for name := range ct.effective.names {
			out[name] = true
		}
	}
	return out
}

func (c *checks) refusals(m *model, r *ads.Response, tc *typeChecks) {
	if whole(m.client.delta, r.Type) {
		if len(tc.refused) > 0 && !tc.moved {
			m.fail("%s is sent again after a refusal, and nothing has changed", r.Type.Short())
		}
		clear(tc.refused) // all of it is in the hands of the client again
		return
	}
	for _, b := range r.Resources {
		if tc.refused[b.Name.Value()].version == b.Version {
			m.fail("%s %s is sent again at the refused version", r.Type.Short(), b.Name.Value())
		}
		delete(tc.refused, b.Name.Value())
	}
}

func (c *checks) justified(m *model, reason ads.CloseReason) {
	switch reason {
	case ads.CloseAckTimeout:
		for t, tc := range c.types {
			if tc.waiting && m.client.types[t] != nil {
				return
			}
		}
		m.fail("closed for want of an answer, and nothing waits for one")
	case ads.CloseSendBlocked:
		if !m.handed {
			m.fail("closed because a send was blocked, and none is")
		}
	case ads.CloseTooManyNames:
		if m.config.MaxNames > 20 {
			m.fail("closed for too many names, with a limit of %d", m.config.MaxNames)
		}
	case ads.CloseTooFarBehind:
		for _, ct := range m.client.types {
			if ct.effective.wildcard {
				return
			}
		}
		m.fail("closed as too far behind, without a wildcard")
	case ads.CloseNoRequest:
		m.fail("closed for want of a first request, which is not this package's business")
	}
}

// verify holds the stream against the model after a step.
func (m *model) verify() {
	if m.s.Tick(m.now) == "" {
		if d := m.s.Deadline(m.now); !d.After(m.now) {
			m.fail("the deadline %v is not after now, %v: a busy loop", d, m.now)
		}
	}
	acks, view := m.s.Acks(), m.s.View()
	for _, t := range acks.Types() {
		ct := m.client.types[t]
		if ct == nil || !ct.known {
			m.fail("type %s is tracked, and was never requested", t)
		}
		tr := acks.Type(t)
		if tr.Wildcard() != ct.effective.wildcard || len(tr.Names()) != len(ct.effective.names) {
			m.fail("%s: subscribed to wildcard=%v %v, want %v", t.Short(), tr.Wildcard(), tr.Names(), ct.effective)
		}
		m.verifyType(t, ct)
		st := acks.State(t, m.now, view)
		if (st.HeldVersion == st.CurrentVersion) != (st.Behind == 0) {
			m.fail("%s: held %s, current %s, behind %d", t.Short(), st.HeldVersion, st.CurrentVersion, st.Behind)
		}
		if st.Behind != len(acks.Behind(t, view)) {
			m.fail("%s: behind %d, and %v", t.Short(), st.Behind, acks.Behind(t, view))
		}
		if st.State == ack.Fresh && st.Behind > 0 {
			m.fail("%s: fresh and behind", t.Short())
		}
	}
	m.verifyInterest()
}

// verifyType is the promise: what counts as current, the client holds.
func (m *model) verifyType(t mesh.Type, ct *clientType) {
	for name := range m.candidates(t) {
		n := mesh.ResourceName{Type: t, Name: name}
		subscribed, current := m.s.Acks().HoldsCurrent(t, mesh.Intern(name), m.s.View())
		if subscribed != ct.effective.wants(name) {
			m.fail("%s %s: subscribed %v", t.Short(), name, subscribed)
		}
		want := m.current(n)
		if !m.client.delta && want == "" && !whole(false, t) {
			continue // cannot be told
		}
		if subscribed && current && ct.held[name] != want {
			m.fail("false fresh: %s %s counts as current, the client holds %q, current is %q", t.Short(), name, ct.held[name], want)
		}
	}
	limit := len(m.candidates(t)) + len(allNames) + 3
	if n := len(m.s.Acks().Type(t).Lacking()); n > limit {
		m.fail("%s: %d exceptions, limit %d", t.Short(), n, limit)
	}
}

// verifyInterest: the stream is woken for exactly what it subscribes to.
func (m *model) verifyInterest() {
	want := map[ads.InterestChange]bool{}
	for t, ct := range m.client.types {
		if ct.effective.wildcard {
			want[ads.InterestChange{Type: t, All: true, On: true}] = true
		}
		for name := range ct.effective.names {
			want[ads.InterestChange{Type: t, Name: mesh.Intern(name), On: true}] = true
		}
	}
	if len(want) != len(m.check.woken) {
		m.fail("woken for %d, subscribed to %d", len(m.check.woken), len(want))
	}
	for ch := range want {
		if !m.check.woken[ch] {
			m.fail("not woken for %v", ch)
		}
	}
}

// converged compares both sides at the end. Without all, what is refused does not count.
func (m *model) converged(all bool) {
	acks, view := m.s.Acks(), m.s.View()
	for _, t := range acks.Types() {
		ct := m.client.types[t]
		st := acks.State(t, m.now, view)
		refused := map[string]bool{}
		if st.State == ack.Rejected && st.Nack != nil {
			for _, name := range st.Nack.Resources {
				refused[name] = true
			}
		}
		if all && (st.State != ack.Fresh || st.Behind != 0 || st.HeldVersion != st.CurrentVersion) {
			m.fail("%s at rest: %+v, behind %v", t.Short(), st, acks.Behind(t, view))
		}
		if !all && st.State != ack.Rejected && st.State != ack.Fresh {
			m.fail("%s at rest: %+v", t.Short(), st)
		}
		if !all && st.State == ack.Rejected && whole(m.client.delta, t) {
			continue // refused as a whole
		}
		for name := range m.candidates(t) {
			want := m.current(mesh.ResourceName{Type: t, Name: name})
			if refused[name] && !all || !ct.effective.wants(name) || !m.client.delta && want == "" && !whole(false, t) {
				continue
			}
			if got := ct.held[name]; got != want {
				m.fail("%s %s at rest: the client holds %q, want %q", t.Short(), name, got, want)
			}
		}
	}
}
