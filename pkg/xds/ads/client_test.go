package ads_test

import (
	"maps"
	"slices"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
)

// client is a naive xDS client. It applies what it acknowledges, and of what it
// refuses nothing, or (partial) some of the resources.
type client struct {
	delta, partial bool
	types          map[mesh.Type]*clientType
}

type clientType struct {
	// intent is what the client wants now. effective is what the server knows
	// of that: in SotW a request with an old nonce is void.
	intent, effective subscription
	// explicit: a name was sent on this stream.
	explicit bool
	held     map[string]mesh.Version
	// queue: responses that were received and not answered, oldest first.
	queue []*ads.Response
	// last is the nonce received last, "" for none.
	last string
	// known tells that the server has had a request of the type on this stream.
	known bool
}

type subscription struct {
	wildcard bool
	names    map[string]bool
}

func (s subscription) wants(name string) bool { return s.wildcard || s.names[name] }

func (s subscription) clone() subscription {
	return subscription{s.wildcard, maps.Clone(s.names)}
}

func (s subscription) list() []string {
	out := slices.Sorted(maps.Keys(s.names))
	if s.wildcard {
		out = append(out, "*")
	}
	return out
}

func newClient(delta, partial bool) *client {
	return &client{delta: delta, partial: partial, types: map[mesh.Type]*clientType{}}
}

func (c *client) typ(t mesh.Type) *clientType {
	if c.types[t] == nil {
		c.types[t] = &clientType{
			intent: subscription{names: map[string]bool{}}, effective: subscription{names: map[string]bool{}},
			held: map[string]mesh.Version{},
		}
	}
	return c.types[t]
}

// subscribe takes an incremental request's subscription changes.
func (ct *clientType) subscribe(r ads.Request, first bool) {
	for _, name := range r.Unsubscribe {
		if name == "*" {
			ct.intent.wildcard = false
		} else {
			delete(ct.intent.names, name)
		}
	}
	if first && len(r.Subscribe)+len(r.Unsubscribe) == 0 {
		ct.intent.wildcard = true
	}
	for _, name := range r.Subscribe {
		if name == "*" {
			ct.intent.wildcard = true
		} else {
			ct.intent.names[name] = true
		}
	}
	ct.settle()
}

// rename takes a SotW request's names; it takes effect in settle.
func (ct *clientType) rename(names []string) {
	ct.explicit = ct.explicit || len(names) > 0
	ct.intent = subscription{wildcard: !ct.explicit, names: map[string]bool{}}
	for _, name := range names {
		if name == "*" {
			ct.intent.wildcard = true
		} else {
			ct.intent.names[name] = true
		}
	}
}

// settle: the server knows what the client wants, and the client forgets the rest.
func (ct *clientType) settle() {
	ct.effective = ct.intent.clone()
	maps.DeleteFunc(ct.held, func(name string, _ mesh.Version) bool { return !ct.effective.wants(name) })
}

// apply takes a response into what is held.
func (c *client) apply(r *ads.Response) {
	ct := c.types[r.Type]
	if whole(c.delta, r.Type) {
		clear(ct.held)
	}
	for _, b := range r.Resources {
		if name := b.Name.Value(); ct.intent.wants(name) {
			ct.held[name] = mesh.VersionOf(b.Value())
		}
	}
	for _, name := range r.Removed {
		delete(ct.held, name)
	}
}

// applySome takes every other resource of a response that the client refuses.
func (c *client) applySome(r *ads.Response) {
	ct := c.types[r.Type]
	for i, b := range r.Resources {
		if name := b.Name.Value(); i%2 == 0 && ct.intent.wants(name) {
			ct.held[name] = mesh.VersionOf(b.Value())
		}
	}
}

// disconnect forgets the stream and keeps what is held.
func (c *client) disconnect() {
	for _, ct := range c.types {
		ct.queue, ct.last, ct.known, ct.explicit = nil, "", false, false
		ct.effective = subscription{names: map[string]bool{}}
	}
}

func whole(delta bool, t mesh.Type) bool {
	return !delta && (t == mesh.TypeCluster || t == mesh.TypeListener)
}
