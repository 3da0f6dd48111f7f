package oracle

import (
	"maps"
	"slices"
	"time"
)

// Subscribe says that the client has sent a delta request which changes its
// subscription; the first of a type on a stream may carry what it holds.
func (n *Node) Subscribe(typ string, subscribe, unsubscribe []string, offered map[string]string, at time.Time) {
	r, first := n.record(typ, at)
	if first {
		r.offered = maps.Clone(offered)
	}
	want, count := n.wants[typ].clone(), len(r.responses)
	wild := slices.Contains(subscribe, "*") || first && len(subscribe)+len(unsubscribe) == 0
	for _, name := range unsubscribe {
		if name == "*" {
			want.Wildcard = false
			continue
		}
		if want.Names[name] && (want.Wildcard || wild) {
			r.asked[name] = count + 1 // it is told whether the wildcard covers it
		}
		delete(want.Names, name)
	}
	want.Wildcard = want.Wildcard || wild
	for _, name := range subscribe {
		if name != "*" {
			if want.Names[name] && !first {
				r.again[name] = count + 1
			}
			want.Names[name] = true
		}
		if r.offered[name] == "" || !first {
			r.asked[name] = count + 1
		}
	}
	if wild && !first {
		r.asked["*"] = count + 1
	}
	n.wants[typ] = want
	n.stream.asks(r, want.clone(), at)
	n.forgetUnwanted(typ)
}

// Rename says that the client has sent a SotW request with all the names that
// it wants; nonce is the one that it carried. It gives whether the server takes it.
func (n *Node) Rename(typ string, want Subscription, nonce string, at time.Time) bool {
	n.wants[typ] = want.clone()
	n.forgetUnwanted(typ)
	r, first := n.record(typ, at)
	if l := r.last(); !first && l != nil && l.Nonce != nonce || !first && l == nil && nonce != "" {
		for _, name := range append(n.world.Names(), slices.Collect(maps.Keys(r.known.Names))...) {
			if r.known.covers(name) && !want.covers(name) && r.waiting() != nil {
				r.asked[name] = len(r.responses) + 1 // the client has thrown it away
			}
		}
		return false // with an old nonce a request is void as a whole
	}
	for name := range want.Names {
		if !r.known.Names[name] {
			r.asked[name] = len(r.responses) + 1
		}
	}
	if want.Wildcard && !r.known.Wildcard {
		r.asked["*"] = len(r.responses) + 1
	}
	n.stream.asks(r, want.clone(), at)
	return true
}

func (n *Node) forgetUnwanted(typ string) {
	maps.DeleteFunc(n.held[typ], func(name, _ string) bool { return !n.wants[typ].covers(name) })
}

// askedSince tells whether a name was asked for after the response of that
// index, -1 for before the first.
func (r *record) askedSince(name string, index int) bool {
	return r.asked[name] > index+1 || r.asked["*"] > index+1
}

// Answer says what the client has answered to a response of the stream: applied
// are the resources (and removals) that it took. It gives whether the server has to count it.
func (n *Node) Answer(x *Response, a Answer, applied func(name string) bool, at time.Time) bool {
	n.apply(x, a, applied)
	r := n.stream.types[x.Type]
	if r.last() != x || x.answer != None {
		x.answer = Void
		return false
	}
	x.answer = a
	n.stream.answeredAt = at
	if a == Acked {
		n.stream.acked[x.Type] = at
	}
	return true
}

func (n *Node) apply(x *Response, a Answer, applied func(name string) bool) {
	held := n.held[x.Type]
	if n.whole(x.Type) && a == Acked {
		clear(held)
	}
	for name, content := range x.Resources {
		if n.wants[x.Type].covers(name) && applied(name) {
			held[name] = content
		}
	}
	for _, name := range x.Removed {
		if applied(name) {
			delete(held, name)
		}
	}
}
