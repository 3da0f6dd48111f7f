package refresh

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var (
	echo = mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: "echo"}
	t0   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	dead = netip.MustParseAddrPort("10.0.0.1:8080")
)

func failure(node mesh.NodeID, at netip.AddrPort) Report {
	return Report{Node: node, Cluster: "echo", Endpoints: []EndpointFailure{{Address: at, ConnectFailed: 3}}}
}

func verdictsOf(out effects) []string {
	var all []string
	for _, f := range out.findings {
		text := fmt.Sprintf("%s %s", f.Node, f.verdict)
		if f.news {
			text += " news"
		}
		all = append(all, text)
	}
	return all
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmp.AllowUnexported(pair{})); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestNodeBehindIsResentWithBackOff(t *testing.T) {
	c := newCore(Limits{}.withDefaults(), t0)
	behind := Holding{Behind: true}
	c.judge(t0, failure("a", dead), behind, echo, true)
	out := c.take()
	expect(t, "resend", out.resend, []pair{{"a", "echo"}})
	expect(t, "verdict", verdictsOf(out), []string{"a node-behind news"})

	// At once again: held back until a second has passed, and asked again then.
	c.judge(t0.Add(100*time.Millisecond), failure("a", dead), behind, echo, true)
	out = c.take()
	expect(t, "resends within the back-off", len(out.resend), 0)
	expect(t, "deferred", out.deferred, []deferral{backOff})
	if wait, ok := c.next(t0.Add(100 * time.Millisecond)); !ok || wait != 900*time.Millisecond {
		t.Errorf("next: %v %v", wait, ok)
	}
	now := t0.Add(time.Second)
	d := c.due(now)
	if len(d) != 1 {
		t.Fatalf("due: %v", d)
	}
	c.judgeAgain(now, d[0], behind, echo, true)
	out = c.take()
	expect(t, "second resend", len(out.resend), 1)
	expect(t, "second verdict is no news", verdictsOf(out), []string{"a node-behind"})

	// The back-off has doubled; a node that caught up meanwhile is left alone.
	c.judge(now, failure("a", dead), behind, echo, true)
	c.take()
	if d := c.due(now.Add(1999 * time.Millisecond)); d != nil {
		t.Errorf("due too early: %v", d)
	}
	d = c.due(now.Add(2 * time.Second))
	c.judgeAgain(now.Add(2*time.Second), d[0], Holding{}, echo, true)
	if out = c.take(); out.findings != nil || out.resend != nil {
		t.Errorf("healed node: %+v", out)
	}
	if c.start(now); c.take().read != nil {
		t.Error("healed node caused a read")
	}
}

func TestVerdictOfALiveRead(t *testing.T) {
	for _, tt := range []struct {
		name string
		outcome
		want string
	}{
		{"same", outcome{}, "a current news"},
		{"changed", outcome{changed: true}, "a store-behind news"},
		{"failed", outcome{err: errors.New("refused")}, "a unverified news"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCore(Limits{}.withDefaults(), t0)
			c.judge(t0, failure("a", dead), Holding{}, echo, true)
			c.start(t0)
			expect(t, "reads", c.take().read, []mesh.Key{echo})
			c.verified(t0.Add(time.Millisecond), echo, tt.outcome)
			out := c.take()
			expect(t, "verdict", verdictsOf(out), []string{tt.want})
			expect(t, "resends", len(out.resend), 0)
			if tt.err != nil && out.findings[0].reason != "refused" {
				t.Errorf("reason %q", out.findings[0].reason)
			}
		})
	}
}

func TestReadIsSharedAndThenRenewed(t *testing.T) {
	c := newCore(Limits{}.withDefaults(), t0)
	known := Holding{}
	c.judge(t0, failure("a", dead), known, echo, true)
	c.start(t0)
	c.judge(t0, failure("b", dead), known, echo, true) // while it is read
	c.start(t0)
	expect(t, "reads", len(c.take().read), 1)
	c.verified(t0, echo, outcome{})
	expect(t, "both", verdictsOf(c.take()), []string{"a current news", "b current news"})

	c.judge(t0.Add(999*time.Millisecond), failure("c", dead), known, echo, true)
	expect(t, "from the result", verdictsOf(c.take()), []string{"c current news"})
	c.judge(t0.Add(time.Second), failure("a", dead), known, echo, true)
	c.start(t0.Add(time.Second))
	expect(t, "a new read", len(c.take().read), 1)
	c.verified(t0.Add(time.Second), echo, outcome{})
	expect(t, "the same verdict is no news", verdictsOf(c.take()), []string{"a current"})
}

func TestNewsIsAnotherVerdictOrAnotherEndpoint(t *testing.T) {
	c := newCore(Limits{}.withDefaults(), t0)
	say := func(after time.Duration, at netip.AddrPort, o outcome) bool {
		now := t0.Add(after)
		c.judge(now, failure("a", at), Holding{}, echo, true)
		c.start(now)
		c.take()
		c.verified(now, echo, o)
		return c.take().findings[0].news
	}
	other := netip.MustParseAddrPort("10.0.0.2:8080")
	got := []bool{
		say(0, dead, outcome{}),
		say(10*time.Second, dead, outcome{}),
		say(20*time.Second, other, outcome{}),
		say(30*time.Second, dead, outcome{changed: true}),
		say(40*time.Second, dead, outcome{}),
		say(50*time.Second, dead, outcome{}),
		say(10*time.Minute, dead, outcome{}), // forgotten meanwhile
	}
	expect(t, "news", got, []bool{true, false, true, true, true, false, true})
}

func TestPublishOnItsWayIsNotResent(t *testing.T) {
	c := newCore(Limits{}.withDefaults(), t0)
	c.judge(t0, failure("a", dead), Holding{}, echo, true)
	c.start(t0)
	c.verified(t0, echo, outcome{changed: true})
	c.take()
	behind := Holding{Behind: true}
	c.judge(t0.Add(500*time.Millisecond), failure("b", dead), behind, echo, true)
	out := c.take()
	expect(t, "resends at once", len(out.resend), 0)
	expect(t, "verdict", verdictsOf(out), []string{"b store-behind news"})
	c.judge(t0.Add(1100*time.Millisecond), failure("b", dead), behind, echo, true)
	expect(t, "resends later", len(c.take().resend), 1)
}

func TestClusterWithoutServiceCostsNoRead(t *testing.T) {
	c := newCore(Limits{}.withDefaults(), t0)
	c.judge(t0, failure("a", dead), Holding{}, mesh.Key{}, false)
	c.start(t0)
	out := c.take()
	expect(t, "verdict", verdictsOf(out), []string{"a unverified news"})
	expect(t, "reads", len(out.read), 0)
}

func TestReadBudget(t *testing.T) {
	c := newCore(Limits{ReadBurst: 2, ReadsPerSecond: 1}.withDefaults(), t0)
	for i := range 4 {
		r := failure(mesh.NodeID(fmt.Sprint(i)), dead)
		c.judge(t0, r, Holding{}, mesh.Key{Name: fmt.Sprint(i)}, true)
	}
	c.start(t0)
	out := c.take()
	expect(t, "reads at once", out.read, []mesh.Key{{Name: "0"}, {Name: "1"}})
	expect(t, "deferred", out.deferred, []deferral{readBudget, readBudget})
	if wait, ok := c.next(t0); !ok || wait != time.Second {
		t.Errorf("next: %v %v", wait, ok)
	}
	c.start(t0.Add(time.Second))
	out = c.take()
	expect(t, "read later", out.read, []mesh.Key{{Name: "2"}})
	expect(t, "not counted twice", len(out.deferred), 0)
}

func TestMemoryIsBoundedAndForgotten(t *testing.T) {
	c := newCore(Limits{MaxPairs: 5, MaxPairsPerNode: 3}.withDefaults(), t0)
	for i := range 10 {
		r := failure("liar", dead)
		r.Cluster = fmt.Sprint(i)
		c.judge(t0, r, Holding{}, mesh.Key{}, false)
	}
	expect(t, "dropped of one node", c.take().dropped, 7)
	for i := range 4 {
		c.judge(t0, failure(mesh.NodeID(fmt.Sprint(i)), dead), Holding{}, mesh.Key{}, false)
	}
	expect(t, "dropped in all", c.take().dropped, 2)
	later := t0.Add(time.Hour)
	c.judge(later, failure("z", dead), Holding{}, mesh.Key{}, false)
	expect(t, "pairs left", len(c.pairs), 1)
	expect(t, "nodes left", len(c.nodes), 1)
}

// Whatever clients claim and whatever is found, resends and reads stay within
// their budgets, memory within its bounds, and no report waits for ever.
func TestBudgetsHoldAgainstAnyReports(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{ReadsPerSecond: 5, ReadBurst: 4, NodePerSecond: 1, NodeBurst: 3, MaxReading: 2, MaxPairs: 30, MaxPairsPerNode: 10}.withDefaults()
		c := newCore(l, t0)
		now := t0
		var flight []mesh.Key
		reads, resends := 0, map[mesh.NodeID]int{}
		judge := func(r Report, d *delayed) {
			h := Holding{Behind: rapid.Bool().Draw(t, "behind")}
			svc, ok := mesh.Key{Name: r.Cluster}, r.Cluster != "c9"
			if d != nil {
				c.judgeAgain(now, *d, h, svc, ok)
			} else {
				c.judge(now, r, h, svc, ok)
			}
		}
		settle := func() {
			for _, d := range c.due(now) {
				judge(d.report, &d)
			}
			c.start(now)
			out := c.take()
			reads += len(out.read)
			flight = append(flight, out.read...)
			for _, p := range out.resend {
				resends[p.node]++
			}
			elapsed := now.Sub(t0).Seconds()
			if float64(reads) > 4+5*elapsed+1e-6 {
				t.Fatalf("%d reads in %v s", reads, elapsed)
			}
			for n, k := range resends {
				if float64(k) > 3+elapsed+1e-6 {
					t.Fatalf("%d resends to %s in %v s", k, n, elapsed)
				}
			}
			if len(flight) > 2 || len(c.pairs) > 30 || len(c.later) > 30 {
				t.Fatalf("%d in flight, %d pairs, %d later", len(flight), len(c.pairs), len(c.later))
			}
			for i, k := range flight {
				if slices.Contains(flight[:i], k) {
					t.Fatalf("%v is read twice at once", k)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"report": func(t *rapid.T) {
				r := failure(mesh.NodeID(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "node")), dead)
				r.Cluster = fmt.Sprintf("c%d", rapid.IntRange(0, 19).Draw(t, "cluster"))
				judge(r, nil)
				settle()
			},
			"pass": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms")) * time.Millisecond)
				settle()
			},
			"answer": func(t *rapid.T) {
				if len(flight) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(flight)-1).Draw(t, "which")
				key := flight[i]
				flight = slices.Delete(flight, i, i+1)
				c.verified(now, key, outcome{changed: rapid.Bool().Draw(t, "changed")})
				settle()
			},
		})
		// Nothing more comes in, every node is healthy: all that waits ends.
		for range 1000 {
			for _, k := range flight {
				c.verified(now, k, outcome{})
			}
			flight = nil
			wait, ok := c.next(now)
			if !ok {
				break
			}
			now = now.Add(wait)
			for _, d := range c.due(now) {
				c.judgeAgain(now, d, Holding{}, mesh.Key{Name: d.report.Cluster}, true)
			}
			c.start(now)
			flight = c.take().read
		}
		waiting := len(c.queue) + len(c.later) + c.reading
		for _, s := range c.services {
			waiting += len(s.waiters)
		}
		if waiting != 0 {
			t.Fatalf("%d still wait", waiting)
		}
	})
}

func TestReportsAddUpWhileTheyWait(t *testing.T) {
	c := newCore(Limits{}.withDefaults(), t0)
	for range 3 {
		c.judge(t0, failure("a", dead), Holding{}, echo, true)
		c.start(t0)
	}
	c.verified(t0, echo, outcome{})
	out := c.take()
	if len(out.findings) != 1 || out.findings[0].Endpoints[0].ConnectFailed != 9 {
		t.Errorf("for a read: %+v", out.findings)
	}
	behind := Holding{Behind: true}
	for range 3 { // the first is resent, two wait for the back-off
		c.judge(t0.Add(time.Minute), failure("a", dead), behind, echo, true)
	}
	if d := c.due(t0.Add(2 * time.Minute)); len(d) != 1 || d[0].report.Endpoints[0].ConnectFailed != 6 {
		t.Errorf("for the back-off: %+v", d)
	}
}

func TestDelayedReportsComeDueOneAfterTheOther(t *testing.T) {
	c := newCore(Limits{}.withDefaults(), t0)
	behind := Holding{Behind: true}
	for i, node := range []mesh.NodeID{"a", "b", "c"} {
		at := t0.Add(time.Duration(i) * 100 * time.Millisecond)
		c.judge(at, failure(node, dead), behind, echo, true)
		c.judge(at, failure(node, dead), behind, echo, true) // waits a second
	}
	var got []string
	now := t0.Add(200 * time.Millisecond)
	for {
		wait, ok := c.next(now)
		if !ok {
			break
		}
		now = now.Add(wait)
		for _, d := range c.due(now) {
			got = append(got, fmt.Sprint(d.report.Node, " ", now.Sub(t0)))
		}
	}
	expect(t, "due", got, []string{"a 1s", "b 1.1s", "c 1.2s"})
}

func TestForgettingANodeDoesNotFillItsBudget(t *testing.T) {
	l := Limits{NodeBurst: 1, NodePerSecond: 1.0 / 3600, Forget: time.Minute}.withDefaults()
	c := newCore(l, t0)
	behind := Holding{Behind: true}
	c.judge(t0, failure("a", dead), behind, echo, true)
	c.judge(t0.Add(10*time.Minute), failure("a", dead), behind, echo, true)
	out := c.take()
	expect(t, "resends", len(out.resend), 1)
	expect(t, "deferred", out.deferred, []deferral{nodeBudget})
	// When the budget is full again, nothing is left of the node.
	c.due(t0.Add(3 * time.Hour))
	c.judge(t0.Add(3*time.Hour), failure("b", dead), Holding{}, mesh.Key{}, false)
	if len(c.nodes) != 1 || len(c.pairs) != 1 {
		t.Errorf("%d nodes, %d pairs", len(c.nodes), len(c.pairs))
	}
}
