package balance

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// group is entries that are alike but for their weights. Immutable, but for next.
type group struct {
	id      groupID
	members []*Entry
	scales  []float64
	listed  float64
	// upTo[i] is the weight of members[:i+1]; nil when all weights are equal.
	upTo []float64
	// mean is the mean weight.
	mean float64
	// newest is the last moment at which a member became usable.
	newest time.Time

	// ring, table and turn belong to RingHash, Maglev and RoundRobin; a nil turn goes through all in order.
	ring  ring
	table []int32
	turn  []int32
	next  *atomic.Uint64
}

// groupsOf gives the groups of old by their names, if they were made alike.
func groupsOf(old *Picker, cfg Config) map[groupID]*group {
	known := map[groupID]*group{}
	if old == nil || old.cfg != cfg {
		return known
	}
	for _, b := range old.buckets {
		for _, g := range b.groups {
			known[g.id] = g
		}
	}
	return known
}

// finish makes the group, or gives k, which may be nil, if nothing changed. A
// changed group goes on at k's position of round robin.
func (d *draft) finish(cfg Config, k *group) *group {
	g := &group{id: d.id, members: d.members, scales: d.scales, listed: d.listed, next: new(atomic.Uint64)}
	if k != nil {
		// The scale sizes a ring; nothing else depends on it.
		if slices.Equal(k.members, g.members) && slices.Equal(k.scales, g.scales) && (cfg.Policy != RingHash || k.listed == g.listed) {
			return k
		}
		g.next = k.next
	} else if n := len(g.members); n > 0 {
		g.next.Store(rand.Uint64N(uint64(n)))
	}
	g.weigh()
	alike := k != nil && slices.EqualFunc(k.members, g.members, weighAlike) && slices.Equal(k.scales, g.scales)
	switch cfg.Policy {
	case RingHash:
		if alike && k.listed == g.listed {
			g.ring = k.ring
		} else {
			g.ring = newRing(g, cfg, k)
		}
	case Maglev:
		if alike {
			g.table = k.table
		} else {
			g.table = newTable(g, cfg.Table)
		}
	case RoundRobin:
		g.turn = weightedOrder(g.members)
	case LeastRequest, Random:
	}
	return g
}

// weighAlike tells whether two entries have the same places in a ring or table.
func weighAlike(a, b *Entry) bool {
	return a == b || a.EndpointKey == b.EndpointKey && a.Weight == b.Weight
}

// weight is never 0.
func (g *group) weight(j int) float64 {
	w := float64(max(g.members[j].Weight, 1))
	if g.scales != nil {
		w *= g.scales[j]
	}
	return w
}

func (g *group) weigh() {
	equal, sum := true, 0.0
	first := g.weight(0)
	for j, e := range g.members {
		w := g.weight(j)
		equal = equal && w == first
		sum += w
		if e.Since.After(g.newest) {
			g.newest = e.Since
		}
	}
	g.mean = sum / float64(len(g.members))
	if equal {
		return
	}
	g.upTo = make([]float64, len(g.members))
	sum = 0
	for j := range g.members {
		sum += g.weight(j)
		g.upTo[j] = sum
	}
}

// pick gives an index into members, or -1.
func (g *group) pick(cfg *Config, r *Request) int {
	switch cfg.Policy {
	case RoundRobin:
		return g.roundRobin(cfg, r)
	case RingHash:
		return g.ring.pick(r.Hash, func(j int) bool { return g.open(j, r) })
	case Maglev:
		return g.fromTable(r)
	case Random:
		return g.draw(&SlowStart{}, r, -1)
	case LeastRequest:
	}
	return g.powerOfTwo(cfg, r)
}

// open tells whether a place in a ring or table can be picked: those of entries that are out are kept.
func (g *group) open(j int, r *Request) bool {
	out := g.members[j].Out
	return (out == In || out == Doubted && g.id.kind > degraded) && !g.tried(j, r)
}

func (g *group) tried(j int, r *Request) bool {
	return slices.Contains(r.Tried, g.members[j].EndpointKey)
}

// maxDraws bounds how often a draw may be refused before all are looked at.
const maxDraws = 16

// draw gives a member that was not tried and is not other, by weight, or -1. A
// member in its slow start is refused as often as its share is smaller.
func (g *group) draw(slow *SlowStart, r *Request, other int) int {
	n := len(g.members)
	starting := slow.running(g.newest, r.Now)
	if n == 2 && other >= 0 && len(r.Tried) == 0 {
		if starting && rand.Float64() >= slow.factor(g.members[1-other].Since, r.Now) {
			return -1
		}
		return 1 - other
	}
	if len(r.Tried) == 0 && n > 1 {
		for range maxDraws {
			j := 0
			if g.upTo == nil {
				j = rand.IntN(n)
			} else {
				j = choose(g.upTo, rand.Float64())
			}
			if j != other && (!starting || rand.Float64() < slow.factor(g.members[j].Since, r.Now)) {
				return j
			}
		}
	}
	// Reservoir of one: a retry is rare, so that a scan is cheap enough.
	chosen, seen := -1, 0.0
	for j := range g.members {
		if j == other || g.tried(j, r) {
			continue
		}
		w := g.weight(j)
		if starting {
			w *= slow.factor(g.members[j].Since, r.Now)
		}
		seen += w
		if rand.Float64()*seen <= w {
			chosen = j
		}
	}
	return chosen
}

// powerOfTwo draws one by weight, compares it with another (Mitzenmacher, "The
// Power of Two Choices in Randomized Load Balancing") and moves to that one by
// odds. So equal endpoints share exactly by their weights.
func (g *group) powerOfTwo(cfg *Config, r *Request) int {
	a := g.draw(&cfg.SlowStart, r, -1)
	if a < 0 {
		return -1
	}
	ca := g.costs(cfg, a, r)
	for range 3 {
		if !ca.avoid {
			break
		}
		if other := g.draw(&cfg.SlowStart, r, a); other >= 0 {
			a, ca = other, g.costs(cfg, other, r)
		}
	}
	b := g.draw(&cfg.SlowStart, r, a)
	if b < 0 || rand.Float64() >= ca.moves(g.costs(cfg, b, r)) {
		return a
	}
	return b
}

func (g *group) costs(cfg *Config, j int, r *Request) costs {
	w := 1.0
	if g.upTo != nil {
		w = g.weight(j) / g.mean
	}
	if cfg.SlowStart.running(g.newest, r.Now) {
		w *= cfg.SlowStart.factor(g.members[j].Since, r.Now)
	}
	return g.members[j].Load.costs(r.Now, w)
}
