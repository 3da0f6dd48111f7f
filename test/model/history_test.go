package model

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// histories is how many are run. rapid picks the seed of each hundred at random
// and prints it, with the smallest history it finds, when there is a difference.
var histories = flag.Int("histories", 300, "how many histories TestHistories runs, in hundreds")

// TestHistories runs random histories through the real control plane: nothing
// may differ from what the oracle says, at any moment, nor at rest.
func TestHistories(t *testing.T) {
	for i := range max(1, *histories/100) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { check(rt, t) })
		})
	}
}

func check(rt *rapid.T, t *testing.T) {
	specs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) nodeSpec {
		return nodeSpec{
			Delta: rapid.Bool().Draw(t, "delta"), Legacy: rapid.Bool().Draw(t, "legacy"),
			Zone: rapid.SampledFrom(zones[:]).Draw(t, "zone"),
		}
	}), 1, 3).Draw(rt, "nodes")
	history := steps().Draw(rt, "steps")
	var log, wrong []string
	synctest.Test(t, func(t *testing.T) { log, wrong = run(t, specs, history) })
	if len(wrong) > 0 {
		rt.Fatalf("%s\nafter:\n  %s", strings.Join(wrong, "\n"), strings.Join(log, "\n  "))
	}
}

// run runs one history in a bubble, and gives what happened and what was wrong.
func run(t *testing.T, specs []nodeSpec, history []step) (log, wrong []string) {
	r := newRig(t, specs)
	defer r.end()
	begin := time.Now()
	for i, s := range history {
		if s.Kind != nothing {
			r.note("%d. at %v: %s", i+1, time.Since(begin), s)
		}
		if r.do(s); len(r.wrong) > 0 {
			return r.log, r.wrong
		}
	}
	r.heal()
	return r.log, r.wrong
}

// The demands at rest.
const (
	restWithRefusals = iota + 1
	restWithout
)

// heal makes every client healthy: what was promised holds within 20 s. Then
// what was refused is asked for on a new stream, and nothing at all may be left.
func (r *rig) heal() {
	r.note("heal")
	for _, c := range r.clients {
		if c.link != nil {
			r.hear(c)
		}
		c.mode, c.away = prompt, false
	}
	r.settle()
	r.pass(20 * time.Second)
	r.resting = restWithRefusals
	r.settle()
	r.resting = 0
	if len(r.wrong) > 0 {
		return
	}
	for _, c := range r.clients {
		c.close()
	}
	r.settle()
	r.pass(time.Second)
	r.resting = restWithout
	r.settle()
}
