package balance

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// maxTurn bounds the order of round robin, unless there are more entries.
const maxTurn = 1 << 12

// roundRobin gives the next whose turn it is and that was not tried; one in
// its slow start misses turns.
func (g *group) roundRobin(cfg *Config, r *Request) int {
	n := uint64(len(g.members))
	if g.turn != nil {
		n = uint64(len(g.turn))
	}
	starting := cfg.SlowStart.running(g.newest, r.Now)
	missed := -1
	for range n {
		j := int(g.next.Add(1) % n)
		if g.turn != nil {
			j = int(g.turn[j])
		}
		switch {
		case g.tried(j, r):
		case starting && rand.Float64() >= cfg.SlowStart.factor(g.members[j].Since, r.Now):
			missed = j
		default:
			return j
		}
	}
	return missed
}

// weightedOrder spreads each entry's turns evenly over one round: the k-th of
// w turns comes at (k + 1/2) / w of it. Nil for equal weights.
func weightedOrder(in []*Entry) []int32 {
	weights := turns(in)
	if !slices.ContainsFunc(weights, func(w int64) bool { return w != 1 }) {
		return nil
	}
	type moment struct {
		at    float64
		entry int32
	}
	var round []moment
	for i, w := range weights {
		for k := range w {
			round = append(round, moment{(float64(k) + 0.5) / float64(w), int32(i)})
		}
	}
	slices.SortFunc(round, func(a, b moment) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.entry, b.entry)) })
	order := make([]int32, len(round))
	for i, m := range round {
		order[i] = m.entry
	}
	return order
}

// turns is how often each entry's turn comes in a round: its weight, scaled
// down to at most about maxTurn in all, without a common divisor.
func turns(in []*Entry) []int64 {
	weights := make([]int64, len(in))
	total := int64(0)
	for i, e := range in {
		weights[i] = int64(max(e.Weight, 1))
		total += weights[i]
	}
	divisor := int64(0)
	for i := range weights {
		if total > maxTurn {
			weights[i] = max(weights[i]*maxTurn/total, 1)
		}
		divisor = gcd(divisor, weights[i])
	}
	for i := range weights {
		weights[i] /= divisor
	}
	return weights
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
