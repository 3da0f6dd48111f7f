package balance

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Entry is an endpoint to choose from.
type Entry struct {
	mesh.Endpoint
	// Load is never nil and belongs to the endpoint, not to the picker.
	Load *Load
	// Ejected takes the endpoint out, whatever its health.
	Ejected bool
}

// Request is what a pick depends on.
type Request struct {
	Now time.Time
	// Hash chooses the endpoint of a ring; other policies ignore it.
	Hash uint64
	// Tried are the endpoints that this request has been to; they are not
	// picked again. May be nil.
	Tried []mesh.EndpointKey
}

// Policy is how to choose among equals.
type Policy int

// The policies.
const (
	LeastRequest Policy = iota
	RoundRobin
	Random
	RingHash
)

// Picker chooses. Immutable but for the position of round robin; safe for concurrent use.
type Picker struct {
	policy Policy
	// tiers are the usable entries, best first; none is empty.
	tiers []tier
}

type tier struct {
	entries []Entry
	ring    ring
	// turn is the weighted order of round robin, as indices into entries.
	turn []int
	next *atomic.Uint64
}

// New makes a picker over the usable entries. Within a priority the HEALTHY
// come before the DEGRADED; a later priority is used only when an earlier one
// has no usable endpoint (or a request has tried them all). DRAINING,
// UNHEALTHY and ejected endpoints are never picked. entries is not kept.
func New(policy Policy, entries []Entry) *Picker {
	p := &Picker{policy: policy}
	for _, priority := range priorities(entries) {
		for _, health := range []mesh.Health{mesh.Healthy, mesh.Degraded} {
			var in []Entry
			for _, e := range entries {
				if e.Priority == priority && e.Health == health && !e.Ejected {
					in = append(in, e)
				}
			}
			if len(in) > 0 {
				p.tiers = append(p.tiers, newTier(policy, in))
			}
		}
	}
	return p
}

func newTier(policy Policy, in []Entry) tier {
	t := tier{entries: in, next: new(atomic.Uint64)}
	switch policy {
	case RingHash:
		t.ring = newRing(in)
	case RoundRobin:
		t.turn = weightedOrder(in)
		t.next.Store(rand.Uint64N(uint64(len(t.turn))))
	case LeastRequest, Random:
	}
	return t
}

func priorities(entries []Entry) []uint32 {
	var all []uint32
	for _, e := range entries {
		all = append(all, e.Priority)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Usable is how many endpoints can be picked.
func (p *Picker) Usable() int {
	n := 0
	for _, t := range p.tiers {
		n += len(t.entries)
	}
	return n
}

// Pick gives the key of an endpoint, and false when every usable one has been tried.
func (p *Picker) Pick(r Request) (mesh.EndpointKey, bool) {
	for i := range p.tiers {
		if j := p.tiers[i].pick(p.policy, r); j >= 0 {
			return p.tiers[i].entries[j].EndpointKey, true
		}
	}
	return mesh.EndpointKey{}, false
}

// pick gives an index into entries, or -1.
func (t *tier) pick(policy Policy, r Request) int {
	switch policy {
	case RoundRobin:
		start := t.next.Add(1)
		for i := range t.turn {
			if j := t.turn[(start+uint64(i))%uint64(len(t.turn))]; !t.tried(j, r) {
				return j
			}
		}
		return -1
	case RingHash:
		return t.ring.pick(r.Hash, func(j int) bool { return !t.tried(j, r) })
	case Random:
		return t.random(r, -1)
	case LeastRequest:
	}
	return t.powerOfTwo(r)
}

// powerOfTwo compares two random endpoints (Mitzenmacher, "The Power of Two
// Choices in Randomized Load Balancing") and favours the better one.
func (t *tier) powerOfTwo(r Request) int {
	a := t.random(r, -1)
	if a < 0 {
		return -1
	}
	b := t.random(r, a)
	if b < 0 {
		return a
	}
	ea, eb := &t.entries[a], &t.entries[b]
	if rand.Float64() < ea.Load.costs(r.Now, ea.Weight).odds(eb.Load.costs(r.Now, eb.Weight)) {
		return a
	}
	return b
}

// random gives an endpoint that was not tried and is not other, each alike, or -1.
func (t *tier) random(r Request, other int) int {
	n := len(t.entries)
	if len(r.Tried) == 0 {
		if other < 0 {
			return rand.IntN(n)
		}
		if n == 1 {
			return -1
		}
		return (other + 1 + rand.IntN(n-1)) % n
	}
	// Reservoir of one: a retry is rare, so that a scan is cheap enough.
	chosen, seen := -1, 0
	for j := range t.entries {
		if j == other || t.tried(j, r) {
			continue
		}
		seen++
		if rand.IntN(seen) == 0 {
			chosen = j
		}
	}
	return chosen
}

func (t *tier) tried(j int, r Request) bool {
	return slices.Contains(r.Tried, t.entries[j].EndpointKey)
}
