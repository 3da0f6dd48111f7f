package refresh

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

var stranger = Holding{Stranger: true}

// Node ids that nobody knows are free: all of them together have one budget.
func TestStrangersShareOneBudget(t *testing.T) {
	l := Limits{NodeBurst: 3, ReadBurst: 100, MaxReading: 100}.withDefaults()
	c := newCore(l, t0)
	for i := range 50 {
		c.judge(t0, failure(mesh.NodeID(fmt.Sprint("n", i)), dead), stranger, mesh.Key{Name: fmt.Sprint(i)}, true)
	}
	c.judge(t0, failure("known", dead), Holding{}, mesh.Key{Name: "its"}, true)
	c.start(t0)
	out := c.take()
	expect(t, "reads", len(out.read), 4)
	expect(t, "the known node's comes at once", out.read[3], mesh.Key{Name: "its"})
}

// Strangers cannot fill the memory that known nodes need, and one that turns
// out to subscribe is known from then on.
func TestStrangersHaveTheirOwnRoom(t *testing.T) {
	c := newCore(Limits{MaxPairs: 100, MaxStrangers: 5}.withDefaults(), t0)
	for i := range 50 {
		c.judge(t0, failure(mesh.NodeID(fmt.Sprint("n", i)), dead), stranger, echo, true)
	}
	expect(t, "dropped", c.take().dropped, 45)
	c.judge(t0, failure("known", dead), Holding{}, echo, true)
	expect(t, "dropped of a known node", c.take().dropped, 0)
	c.judge(t0, failure("n0", dead), Holding{}, echo, true)
	c.judge(t0, failure("another", dead), stranger, echo, true)
	expect(t, "dropped once n0 is known", c.take().dropped, 0)
	expect(t, "strangers", c.strangers.pairs, 5)

	// All is forgotten in time.
	c.start(t0)
	c.verified(t0, echo, outcome{})
	c.judge(t0.Add(time.Hour), failure("z", dead), Holding{}, echo, true)
	expect(t, "pairs left", len(c.pairs), 1)
	expect(t, "strangers left", c.strangers.pairs, 0)
}

// A cluster that nobody makes, reported by a stranger, leaves nothing behind.
func TestInventedClustersAreNotRemembered(t *testing.T) {
	c := newCore(Limits{}.withDefaults(), t0)
	for i := range 1000 {
		r := failure("liar", dead)
		r.Cluster = fmt.Sprint(i)
		c.judge(t0, r, stranger, mesh.Key{}, false)
	}
	if len(c.pairs)+len(c.nodes)+len(c.services) != 0 {
		t.Errorf("%d pairs, %d nodes, %d services", len(c.pairs), len(c.nodes), len(c.services))
	}
	if out := c.take(); len(out.findings) != 1000 || out.dropped != 0 {
		t.Errorf("%d findings, %d dropped", len(out.findings), out.dropped)
	}
}

// What waits is bounded by node and in the endpoints that it names; failures
// beyond that count without names.
func TestInboxIsBounded(t *testing.T) {
	b := inbox{limit: 10, nodeLimit: 3, endpointLimit: 2, nodes: map[mesh.NodeID]int{}, waiting: map[pair]Report{}, wake: make(chan struct{}, 1)}
	for i := range 5 {
		r := failure("liar", dead)
		r.Cluster = fmt.Sprint(i)
		if ok := b.put(r); ok != (i < 3) {
			t.Errorf("report %d of one node is taken: %v", i, ok)
		}
	}
	if !b.put(failure("honest", dead)) {
		t.Error("another node has no room")
	}
	all := b.take()
	named, failures := 0, uint64(0)
	for _, r := range all {
		named += len(r.Endpoints)
		failures += r.connectFailures()
	}
	if len(all) != 4 || named != 2 || failures != 12 {
		t.Errorf("%d reports name %d endpoints and %d failures", len(all), named, failures)
	}
	if b.endpoints != 0 || len(b.nodes) != 0 {
		t.Error("the counts were not reset")
	}
	if f := (Report{FailConnects: math.MaxUint64}).folded(); f.FailConnects != math.MaxUint64 {
		t.Errorf("wrapped: %d", f.FailConnects)
	}
}
