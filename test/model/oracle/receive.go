package oracle

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Receive takes a response that has just arrived and gives what is wrong with
// it. One that waited while the client was deaf is late: it is taken as it is.
func (n *Node) Receive(x *Response, late bool, at time.Time) []string {
	s := n.stream
	r := s.types[x.Type]
	if r == nil {
		return []string{fmt.Sprintf("a response of type %s, which was never asked for", x.Type)}
	}
	s.order++
	x.at, x.earliest, x.moment, x.order = at, at, n.momentOf(x), s.order
	if late {
		x.earliest, x.moment = s.deafSince, s.deafMoment // or later, but nobody knows
	}
	var wrong []string
	if !late && s.heard {
		wrong = append(n.untrue(x, r), n.needless(x, r, at)...)
		if w := r.waiting(); w != nil && !n.mayOvertake(r) {
			wrong = append(wrong, x.Type+" overtakes a response that waits for its answer, and nobody has asked")
		}
	}
	r.responses = append(r.responses, x)
	return wrong
}

// momentOf is the newest moment that a response can be of.
func (n *Node) momentOf(x *Response) int {
	for name, content := range x.Resources {
		if content != n.current(x.Type, name) {
			return n.world.settled
		}
	}
	return n.world.Now()
}

// mayOvertake tells whether something was asked for after the newest response.
func (n *Node) mayOvertake(r *record) bool {
	for _, count := range r.asked {
		if count > len(r.responses) {
			return true
		}
	}
	return false
}

// untrue compares a response with what is current, and with what was asked for.
func (n *Node) untrue(x *Response, r *record) []string {
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(x.Resources)) {
		if want := n.current(x.Type, name); x.Resources[name] != want && !n.wasTrue(x.Type, name, x.Resources[name]) {
			wrong = append(wrong, fmt.Sprintf("%s %s is sent as %q, and is %q", x.Type, name, x.Resources[name], want))
		}
		if !r.known.covers(name) {
			wrong = append(wrong, fmt.Sprintf("%s %s is sent, and was not asked for", x.Type, name))
		}
	}
	for _, name := range x.Removed {
		if n.current(x.Type, name) != "" || !r.known.covers(name) || x.Resources[name] != "" {
			wrong = append(wrong, fmt.Sprintf("%s %s is told to be gone, and exists or was not asked for", x.Type, name))
		}
	}
	if n.whole(x.Type) {
		for _, name := range n.world.Names() {
			if _, there := x.Resources[name]; !there && r.known.covers(name) {
				wrong = append(wrong, fmt.Sprintf("%s lacks %s, so it counts as deleted", x.Type, name))
			}
		}
	}
	return wrong
}

// wasTrue tells whether a content was current at a moment that may not have been heard of yet.
func (n *Node) wasTrue(typ, name, content string) bool {
	for m := n.world.settled + 1; m < n.world.Now(); m++ {
		if n.world.Content(m, typ, name, n.Zone) == content {
			return true
		}
	}
	return false
}

func (n *Node) current(typ, name string) string {
	return n.world.Content(n.world.Now(), typ, name, n.Zone)
}

// needless gives what in a response there was no reason to send.
func (n *Node) needless(x *Response, r *record, at time.Time) []string {
	if len(r.responses) == 0 && (n.whole(x.Type) || len(x.Resources)+len(x.Removed) == 0) {
		return nil // the first request of a type is answered in any case
	}
	var without []string
	reasons := 0
	names := slices.Concat(slices.Sorted(maps.Keys(x.Resources)), x.Removed)
	if n.whole(x.Type) && r.last() != nil {
		for name := range r.last().Resources {
			if _, still := x.Resources[name]; !still {
				reasons++ // it is gone, or not asked for any more
			}
		}
		for _, name := range n.world.ever() {
			if r.known.covers(name) && n.world.moved(r.last().moment, x.Type, name, n.Zone) {
				reasons++ // it came and went
			}
		}
		if len(r.asked) > 0 && slices.Max(slices.Collect(maps.Values(r.asked))) > len(r.responses) {
			reasons++ // a name that does not exist was asked for: its absence is the answer
		}
	}
	for _, name := range names {
		if n.reason(x, r, name) {
			reasons++
		} else {
			without = append(without, name)
		}
	}
	switch {
	case len(without) == 0 && reasons > 0, n.whole(x.Type) && reasons > 0:
		return nil
	case n.isProbe(x, without):
		return n.probed(x, at)
	}
	return []string{fmt.Sprintf("%s sends %v again (of %v), and nothing asks for it", x.Type, without, names)}
}

// reason tells whether there is one to send a name: it is new to the client, it
// has changed since, it was asked for, the last sending was not acknowledged,
// or its cluster was sent.
func (n *Node) reason(x *Response, r *record, name string) bool {
	content := x.Resources[name]
	prev, was := n.about(x.Type, r, name, len(r.responses))
	if prev == nil {
		return r.askedSince(name, -1) || content != r.offered[name] || n.world.moved(r.moment, x.Type, name, n.Zone) || n.follows(x, name, 0)
	}
	if content != was || r.askedSince(name, slices.Index(r.responses, prev)) ||
		n.world.moved(prev.moment, x.Type, name, n.Zone) || n.follows(x, name, prev.order) {
		return true
	}
	switch prev.answer {
	case Acked:
		return false
	case Nacked:
		return n.anyMoved(prev, r)
	case None, Void:
		return true
	}
	return false
}

// follows tells whether the cluster of an assignment was sent after a response.
func (n *Node) follows(x *Response, name string, order int) bool {
	clusters := n.stream.types[CDS]
	if x.Type != EDS || clusters == nil {
		return false
	}
	return slices.ContainsFunc(clusters.responses, func(c *Response) bool {
		_, carried := c.Resources[name]
		return carried && c.order > order
	})
}

// anyMoved tells whether anything in a refused response has changed since, or
// was asked for: then the rest of it gets another try.
func (n *Node) anyMoved(x *Response, r *record) bool {
	index := slices.Index(r.responses, x)
	names := slices.Concat(slices.Collect(maps.Keys(x.Resources)), x.Removed)
	if n.whole(x.Type) {
		names = append(names, n.world.Names()...)
		names = append(names, slices.Collect(maps.Keys(r.asked))...)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return r.askedSince(name, index) || n.world.moved(x.moment, x.Type, name, n.Zone)
	})
}

// isProbe tells whether a response can be one: it says nothing new and as little as its type allows.
func (n *Node) isProbe(x *Response, without []string) bool {
	switch {
	case n.Delta:
		return len(x.Resources)+len(x.Removed) == 0
	case n.whole(x.Type):
		return true
	}
	return len(x.Resources) <= 1 && len(without) == len(x.Resources)
}

// probed takes a probe, and gives what is wrong with its time.
func (n *Node) probed(x *Response, at time.Time) []string {
	s := n.stream
	quiet := at.Sub(later(s.openedAt, s.answeredAt))
	for typ, r := range s.types {
		if typ != EDS && typ != RDS && r.waiting() != nil {
			quiet = max(quiet, at.Sub(s.besides(typ))) // who withholds an ACK shows by another type that it lives
		}
	}
	if quiet < n.policy.ProbeInterval || at.Sub(s.probedAt) < n.policy.ProbeInterval {
		return []string{fmt.Sprintf("%s sends a probe, %v after the last answer and %v after the last probe", x.Type, quiet, at.Sub(s.probedAt))}
	}
	s.probedAt = at
	return nil
}

// besides is when another type was last acknowledged; the zero time when none was.
func (s *stream) besides(typ string) time.Time {
	var last time.Time
	for other, at := range s.acked {
		if other != typ {
			last = later(last, at)
		}
	}
	return last
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
