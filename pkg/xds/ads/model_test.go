package ads_test

import (
	"fmt"
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
	// unasked: a transcript had an answer, and the core no response to it.
	unasked bool
}

func runModel(t fataler, data []byte) {
	t.Helper()
	m := &model{t: t, in: data, now: time.Unix(1000, 0)}
	m.run(func() {
		m.setUp(m.pick(2) == 0)
		for len(m.in) > 0 {
			m.step()
			m.verify()
		}
		m.finish()
	})
}

// run calls f, and shows what went before a panic.
func (m *model) run(f func()) {
	m.t.Helper()
	defer func() {
		if p := recover(); p != nil {
			if !m.failed {
				m.t.Logf("panic after:\n  %s", strings.Join(m.log[max(0, len(m.log)-60):], "\n  "))
			}
			panic(p)
		}
	}()
	f()
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

func (m *model) setUp(delta bool) {
	m.client = newClient(delta, m.pick(2) == 1)
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
	before := m.truth.store.Snapshot().Generation()
	m.truth.publish(u, m.now)
	after := m.truth.store.Snapshot().Generation()
	for n := range seen {
		// A form that nobody has asked for counts as another when its maker changes.
		shaped := m.truth.at[before][n].Shape != nil || m.truth.at[after][n].Shape != nil
		if shaped || m.truth.version(before, m.key, m.own, n) != m.truth.version(after, m.key, m.own, n) {
			m.check.changed(n)
		}
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
	switch now := m.s.View().Generation(); {
	case now == m.reader.View().Generation():
		m.check.heard()
	case now > before:
		m.check.heardSome()
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
