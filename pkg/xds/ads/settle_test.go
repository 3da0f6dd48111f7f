package ads_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
)

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
