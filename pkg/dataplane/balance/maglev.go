package balance

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// newTable fills the table of Maglev ("Maglev: A Fast and Reliable Software
// Network Load Balancer", Eisenbud et al., NSDI 2016, section 3.4): every entry
// takes the next free place of its own permutation in turn, a lighter one sits
// out rounds. Entries go in the order of their keys, so that every process
// makes the same table whatever order it learnt them in.
func newTable(g *group, size int) []int32 {
	type candidate struct {
		entry        int32
		at, skip     uint32
		weight, owed float64
	}
	order := make([]candidate, 0, len(g.members))
	heaviest := 0.0
	var text []byte
	for j, e := range g.members {
		text = append(e.Address.AppendTo(text[:0]), e.Identity...)
		h := xxhash.Sum64(text)
		w := g.weight(j)
		heaviest = max(heaviest, w)
		order = append(order, candidate{
			entry: int32(j), at: uint32(h % uint64(size)), skip: uint32(mix(h)%uint64(size-1)) + 1, weight: w,
		})
	}
	slices.SortFunc(order, func(a, b candidate) int { return compareKeys(g.members[a.entry], g.members[b.entry]) })
	table := make([]int32, size)
	for i := range table {
		table[i] = -1
	}
	for filled := 0; filled < size; {
		for i := range order {
			c := &order[i]
			if c.owed += c.weight; c.owed < heaviest {
				continue
			}
			c.owed -= heaviest
			for table[c.at] >= 0 {
				if c.at += c.skip; c.at >= uint32(size) {
					c.at -= uint32(size)
				}
			}
			table[c.at] = c.entry
			if filled++; filled == size {
				break
			}
		}
	}
	return table
}

// rehashes is how many other places of the table a request looks at whose
// first choice is out or was tried, before it goes through the table.
const rehashes = 16

func (g *group) fromTable(r *Request) int {
	size := uint64(len(g.table))
	hash := r.Hash
	for range rehashes {
		if j := int(g.table[hash%size]); g.open(j, r) {
			return j
		}
		hash = mix(hash)
	}
	for i := range size {
		if j := int(g.table[(r.Hash+i)%size]); g.open(j, r) {
			return j
		}
	}
	return -1
}
