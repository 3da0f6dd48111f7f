package ads_test

import (
	"fmt"
	"slices"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
)

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
	} else {
		m.check.overlooked(r, ct)
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
	m.answerWith(t, ackIt, func(r *ads.Request) {
		switch {
		case change && m.client.delta:
			r.Subscribe, r.Unsubscribe = m.names(), m.names()
		case change:
			r.Names = m.names()
		case !m.client.delta:
			r.Names = m.client.types[t].intent.list()
		}
	})
}

// answerWith answers the oldest response of a type, if there is one; fill gives the names.
func (m *model) answerWith(t mesh.Type, ackIt bool, fill func(*ads.Request)) {
	ct := m.client.types[t]
	if ct == nil || len(ct.queue) == 0 {
		return
	}
	r := ct.queue[0]
	ct.queue = ct.queue[1:]
	answer := ads.Request{Type: t, Nonce: r.Nonce}
	fill(&answer)
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
