package faults

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// nowhere is a source that nobody reads.
type nowhere struct{}

func (nowhere) args() []string                { return nil }
func (nowhere) put(string, map[string]string) {}

// The judge of all the cases, over a made-up second: endpoint old is replaced by
// fresh at 100 ms, and the bound is over at 600 ms.
func TestJudge(t *testing.T) {
	t.Parallel()
	const old, fresh, neighbour = "old", "fresh", "neighbour"
	zero := time.Now()
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	for name, c := range map[string]struct {
		// answers are what requests that take 10 ms get, by when they begin; "" is a failure.
		answers map[int]string
		// states are what the audit said, by when.
		states              map[int]ack.State
		recovered           bool
		recovery, blind     time.Duration
		failed, wrong, late int
	}{
		"right at once":                  {answers: map[int]string{50: old, 110: fresh}, recovered: true, recovery: 20 * time.Millisecond},
		"answered by what was replaced":  {answers: map[int]string{110: old, 200: fresh}, recovered: true, recovery: 110 * time.Millisecond, wrong: 1},
		"under way when it was replaced": {answers: map[int]string{95: old, 110: fresh}, recovered: true, recovery: 20 * time.Millisecond},
		"answered by another service":    {answers: map[int]string{110: fresh, 300: neighbour}, recovered: true, recovery: 210 * time.Millisecond, wrong: 1},
		"answered by nobody we know":     {answers: map[int]string{110: fresh, 300: "who"}, recovered: true, recovery: 210 * time.Millisecond, wrong: 1},
		"failed":                         {answers: map[int]string{110: fresh, 300: ""}, recovered: true, recovery: 210 * time.Millisecond, failed: 1},
		"failed when the bound was over": {answers: map[int]string{110: fresh, 710: ""}, recovered: true, recovery: 620 * time.Millisecond, failed: 1, late: 1},
		"the new one is never used": {
			answers: map[int]string{50: old, 400: neighbour}, wrong: 1,
			states: map[int]ack.State{200: ack.Fresh, 600: ack.Fresh}, blind: pollPeriod,
		},
		"used before it was an endpoint": {answers: map[int]string{50: fresh}},
		"fresh while wrong": {
			answers: map[int]string{110: old, 600: old, 700: fresh}, wrong: 2, recovered: true, recovery: 610 * time.Millisecond,
			states: map[int]ack.State{50: ack.Fresh, 200: ack.Fresh, 400: ack.Pending, 600: ack.Fresh, 800: ack.Fresh}, blind: 2 * pollPeriod,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{t: t, fleet: newFleet(t, loopback(), nowhere{})}
			add := func(name, service string) *instance {
				i := &instance{backend: &backend{name: name}, service: service}
				w.fleet.instances[name] = i
				return i
			}
			first, second := add(old, echo), add(fresh, echo)
			w.fleet.publish(other, add(neighbour, other))
			w.fleet.publish(echo, first)
			w.fleet.publish(echo, second)
			first.until, w.fleet.published = at(100), at(100)
			client := &client{kind: dataplane, load: &load{}}
			audit := &watch{}
			for ms := range 1000 {
				if answer, ok := c.answers[ms]; ok {
					o := outcome{began: at(ms), ended: at(ms + 10), answer: answer}
					if answer == "" {
						o.failure = "refused"
					}
					client.load.outcomes = append(client.load.outcomes, o)
				}
				if state, ok := c.states[ms]; ok {
					audit.samples = append(audit.samples, sample{at: at(ms), states: map[mesh.NodeID]ack.State{mesh.NodeID(dataplane.node()): state}})
				}
			}
			m := moments{begin: at(0), changed: at(100), effect: at(100), bound: 500 * time.Millisecond}
			v := w.judge(client, audit, m)
			if v.recovered != c.recovered || v.recovery != c.recovery {
				t.Errorf("recovered %t after %v, want %t after %v", v.recovered, v.recovery, c.recovered, c.recovery)
			}
			if v.sent != len(c.answers) || v.failed != c.failed || v.wrong != c.wrong || v.late != c.late {
				t.Errorf("%d sent, %d failed, %d wrong, %d late; want %d, %d, %d, %d", v.sent, v.failed, v.wrong, v.late, len(c.answers), c.failed, c.wrong, c.late)
			}
			if v.blind != c.blind {
				t.Errorf("blind for %v, want %v", v.blind, c.blind)
			}
		})
	}
}
