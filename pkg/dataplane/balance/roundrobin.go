package balance

// maxTurn bounds the order of round robin.
const maxTurn = 1 << 12

// weightedOrder spreads each entry's turns evenly over one round: the smooth
// weighted round robin that nginx describes.
func weightedOrder(in []Entry) []int {
	weights := turns(in)
	total := int64(0)
	for _, w := range weights {
		total += w
	}
	order := make([]int, 0, total)
	current := make([]int64, len(weights))
	for range total {
		best := 0
		for i, w := range weights {
			current[i] += w
			if current[i] > current[best] {
				best = i
			}
		}
		current[best] -= total
		order = append(order, best)
	}
	return order
}

// turns is how often each entry's turn comes in a round: its weight, scaled
// down to at most about maxTurn in all, without a common divisor.
func turns(in []Entry) []int64 {
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
