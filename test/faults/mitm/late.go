package mitm

import (
	"container/heap"
	"time"
)

// lateItem is something to be done at a time. Its rule is the fault that withholds it.
type lateItem struct {
	due  time.Time
	seq  int // of items with the same time the earlier comes first
	rule any
	run  func()
}

// lateHeap is a heap by time.
type lateHeap []*lateItem

func (h lateHeap) Len() int { return len(h) }

func (h lateHeap) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].seq < h[j].seq
	}
	return h[i].due.Before(h[j].due)
}

func (h lateHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *lateHeap) Push(x any) { *h = append(*h, x.(*lateItem)) }

// Pop implements heap.Interface.
func (h *lateHeap) Pop() any {
	last := len(*h) - 1
	item := (*h)[last]
	*h = (*h)[:last]
	return item
}

// postpone has run called at a time, or when the rule is undone.
func (p *pair) postpone(due time.Time, rule any, run func()) {
	p.seq++
	heap.Push(&p.late, &lateItem{due: due, seq: p.seq, rule: rule, run: run})
}

// release does now what an undone rule had withheld.
func (p *pair) release(rule any) {
	for _, s := range p.streams {
		for d := range s.flows {
			for i := range s.flows[d].queue {
				if item := &s.flows[d].queue[i]; item.rule == rule {
					item.due = time.Time{}
				}
			}
		}
	}
	for _, item := range p.late {
		if item.rule == rule {
			item.due = time.Time{} // the order of seq is theirs from now on
		}
	}
	heap.Init(&p.late)
	if p.faults.freeze == 0 {
		p.expire()
	}
}
