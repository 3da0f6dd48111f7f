//go:build linux

package main

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets of an eighth of their size.
type histogram [512]int

func (h *histogram) add(d time.Duration) {
	n := uint64(max(d, 8))
	top := bits.Len64(n) - 4
	h[top*8+int(n>>top)&7]++
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o {
		h[i] += n
	}
}

// quantile gives the upper end of the bucket that q of all durations do not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	total := 0
	for _, n := range h {
		total += n
	}
	left := int(q * float64(total))
	for i, n := range h {
		if left -= n; left < 0 {
			return time.Duration(uint64(8+i%8+1) << (i / 8))
		}
	}
	return 0
}
