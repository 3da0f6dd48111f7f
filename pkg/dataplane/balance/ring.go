package balance

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// ring is a consistent hash ring (Karger et al.): removing an endpoint moves
// only the keys that it had.
type ring []point

type point struct {
	hash  uint64
	entry int32
}

// newRing gives each entry points by its weight, so that the ring of all
// listed entries, out or not, has MinRing to MaxRing of them: an entry that is
// ejected, or comes back, changes nobody else's points. With the same number
// of points for each weight as in k, which may be nil, only the points of what is new are made.
func newRing(g *group, cfg Config, k *group) ring {
	per := pointsPerWeight(g.listed, cfg)
	if k != nil && k.ring != nil && k.scales == nil && g.scales == nil && pointsPerWeight(k.listed, cfg) == per {
		to, fresh := g.since(k)
		return k.ring.merge(g, to, g.pointsOf(fresh, per))
	}
	all := make([]int32, len(g.members))
	for i := range all {
		all[i] = int32(i)
	}
	return g.pointsOf(all, per)
}

// pointsOf makes the points of some members, sorted.
func (g *group) pointsOf(members []int32, per float64) ring {
	var r ring
	var text []byte
	for _, i := range members {
		text = append(g.members[i].Address.AppendTo(text[:0]), '_')
		stem := len(text)
		for n := range max(int(math.Round(per*g.weight(int(i)))), 1) {
			text = strconv.AppendInt(text[:stem], int64(n), 10)
			r = append(r, point{xxhash.Sum64(text), i})
		}
	}
	slices.SortFunc(r, g.comparePoints)
	return r
}

func (g *group) comparePoints(a, b point) int {
	return cmp.Or(cmp.Compare(a.hash, b.hash), compareKeys(g.members[a.entry], g.members[b.entry]))
}

// since gives where k's members are in g, -1 for those that are gone or weigh
// otherwise, and the members of g that k has not.
func (g *group) since(k *group) (to, fresh []int32) {
	to = make([]int32, len(k.members))
	first, last := 0, 0
	for first < min(len(k.members), len(g.members)) && weighAlike(k.members[first], g.members[first]) {
		to[first] = int32(first)
		first++
	}
	for last < min(len(k.members), len(g.members))-first && weighAlike(k.members[len(k.members)-1-last], g.members[len(g.members)-1-last]) {
		last++
		to[len(k.members)-last] = int32(len(g.members) - last)
	}
	middle := map[mesh.EndpointKey]int32{}
	for i, e := range g.members[first : len(g.members)-last] {
		middle[e.EndpointKey] = int32(first + i)
	}
	for i, e := range k.members[first : len(k.members)-last] {
		to[first+i] = -1
		if j, ok := middle[e.EndpointKey]; ok && weighAlike(e, g.members[j]) {
			to[first+i] = j
			delete(middle, e.EndpointKey)
		}
	}
	for _, j := range middle {
		fresh = append(fresh, j)
	}
	return to, fresh
}

// merge gives the points of r that are still there, and the fresh ones, in order.
func (r ring) merge(g *group, to []int32, fresh ring) ring {
	out := make(ring, 0, len(r)+len(fresh))
	for _, p := range r {
		if p.entry = to[p.entry]; p.entry < 0 {
			continue
		}
		for len(fresh) > 0 && g.comparePoints(fresh[0], p) < 0 {
			out, fresh = append(out, fresh[0]), fresh[1:]
		}
		out = append(out, p)
	}
	return append(out, fresh...)
}

// pointsPerWeight rounds up to a whole number of points as long as the ring's bounds allow it.
func pointsPerWeight(total float64, cfg Config) float64 {
	per := math.Ceil(float64(cfg.MinRing) / total)
	return min(per, float64(cfg.MaxRing)/total)
}

// compareKeys orders entries alike in every process.
func compareKeys(a, b *Entry) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Identity, b.Identity))
}

// pick walks clockwise from hash to the first entry that ok accepts, or gives -1.
func (r ring) pick(hash uint64, ok func(int) bool) int {
	start := sort.Search(len(r), func(i int) bool { return r[i].hash >= hash })
	for i := range r {
		if e := int(r[(start+i)%len(r)].entry); ok(e) {
			return e
		}
	}
	return -1
}
