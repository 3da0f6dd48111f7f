package balance

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/cespare/xxhash/v2"
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
// ejected, or comes back, changes nobody else's points.
func newRing(g *group, cfg Config) ring {
	per := pointsPerWeight(g.listed, cfg)
	var r ring
	var text []byte
	for i, e := range g.members {
		text = append(e.Address.AppendTo(text[:0]), '_')
		stem := len(text)
		for n := range max(int(math.Round(per*g.weight(i))), 1) {
			text = strconv.AppendInt(text[:stem], int64(n), 10)
			r = append(r, point{xxhash.Sum64(text), int32(i)})
		}
	}
	slices.SortFunc(r, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), compareKeys(g.members[a.entry], g.members[b.entry]))
	})
	return r
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
