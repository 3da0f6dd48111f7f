package balance

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/cespare/xxhash/v2"
)

// pointsPerWeight is how many points of the ring an endpoint has for each unit
// of weight, as long as the ring stays below maxRing.
const (
	pointsPerWeight = 100
	maxRing         = 1 << 16
)

// ring is a consistent hash ring (Karger et al.): removing an endpoint moves
// only the keys that it had.
type ring []point

type point struct {
	hash  uint64
	entry int
}

func newRing(in []Entry) ring {
	total := 0
	for _, e := range in {
		total += int(max(e.Weight, 1))
	}
	per := max(min(pointsPerWeight, maxRing/total), 1)
	var r ring
	for i, e := range in {
		// Weights beyond maxRing would make the ring itself the cost; they are cut.
		for n := range min(per*int(max(e.Weight, 1)), maxRing) {
			r = append(r, point{xxhash.Sum64String(fmt.Sprintf("%s_%d", e.Address, n)), i})
		}
	}
	slices.SortFunc(r, func(a, b point) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.entry, b.entry)) })
	return r
}

// pick walks clockwise from hash to the first entry that ok accepts, or gives -1.
func (r ring) pick(hash uint64, ok func(int) bool) int {
	start := sort.Search(len(r), func(i int) bool { return r[i].hash >= hash })
	for i := range r {
		if e := r[(start+i)%len(r)].entry; ok(e) {
			return e
		}
	}
	return -1
}
