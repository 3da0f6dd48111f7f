package drain_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

var now = time.Unix(10_000, 0)

func ago(d time.Duration) time.Time { return now.Add(-d) }

var (
	echo  = mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "echo"}
	other = mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "other"}
)

func claim(r mesh.ResourceName, reason drain.Reason) drain.Claim {
	return drain.Claim{Resource: r, Endpoint: "10.0.0.1:80", Reason: reason, Since: ago(time.Second)}
}

func open(node string, at time.Duration, claims ...drain.Claim) drain.Stream {
	return drain.Stream{Node: mesh.NodeID(node), ConnectedAt: ago(at), Claims: claims}
}

func left(node string, at time.Duration, claims ...drain.Claim) drain.Stream {
	s := open(node, time.Hour, claims...)
	s.LeftAt = ago(at)
	return s
}

func held(node string, at time.Duration, of ...mesh.ResourceName) drain.Stream {
	s := open(node, at)
	s.Clear = of
	return s
}

func TestDecide(t *testing.T) {
	grown := drain.Facts{Now: now, ReadyAt: ago(time.Hour), Known: true}
	with := func(streams ...drain.Stream) drain.Facts {
		f := grown
		f.Streams = streams
		return f
	}
	edit := func(f drain.Facts, change func(*drain.Facts)) drain.Facts {
		change(&f)
		return f
	}
	pending := claim(echo, drain.Pending)
	for _, test := range []struct {
		name  string
		facts drain.Facts
		// want are the waits as "REASON NODE CLUSTER".
		want []string
		// next is when to look again, from now; 0 for never.
		next time.Duration
	}{
		{"nobody", grown, nil, 0},
		{"not synced", edit(grown, func(f *drain.Facts) { f.ReadyAt = time.Time{} }), []string{"not_synced  "}, 0},
		{"ready for 29 s", edit(grown, func(f *drain.Facts) { f.ReadyAt = ago(29 * time.Second) }), []string{"starting  "}, time.Second},
		{"ready for 30 s", edit(grown, func(f *drain.Facts) { f.ReadyAt = ago(30 * time.Second) }), nil, 0},
		{"no such pod", edit(grown, func(f *drain.Facts) { f.Known = false }), []string{"pod_unknown  "}, 0},
		{"listed", edit(grown, func(f *drain.Facts) { f.Listed = []drain.Wait{{Reason: drain.Listed, Cluster: "echo"}} }), []string{"listed  echo"}, 0},
		{"the last one", edit(grown, func(f *drain.Facts) { f.Listed = []drain.Wait{{Reason: drain.LastEndpoint, Cluster: "echo"}} }), []string{"last_endpoint  echo"}, 0},
		{"unanswered", edit(grown, func(f *drain.Facts) { f.Doubts = []drain.Wait{{Reason: drain.Unanswered}} }), []string{"unanswered  "}, 0},
		{"subscribed, clear", with(held("n", time.Minute, echo)), nil, 0},
		{"pending", with(open("n", time.Minute, pending)), []string{"pending n echo"}, 0},
		{"stale beside fresh", with(open("n", time.Minute, claim(echo, drain.Stale)), held("m", time.Minute, echo)), []string{"stale n echo"}, 0},
		{"rejected", with(open("n", time.Minute, claim(echo, drain.Rejected))), []string{"rejected n echo"}, 0},
		{"two streams of a node, one clear", with(held("n", time.Minute, echo), open("n", time.Minute, pending)), []string{"pending n echo"}, 0},
		{"left 29 s ago", with(left("n", 29*time.Second, pending)), []string{"disconnected n echo"}, time.Second},
		{"left 31 s ago", with(left("n", 31*time.Second, pending)), nil, 0},
		{"left in order", with(left("n", time.Second)), nil, 0},
		{"came back, clear", with(left("n", 10*time.Second, pending), held("n", 5*time.Second, echo)), nil, 0},
		{"came back, not subscribed yet", with(left("n", 10*time.Second, pending), held("n", 5*time.Second)), []string{"disconnected n echo"}, 20 * time.Second},
		{"came back, clear of something else", with(left("n", 10*time.Second, pending), held("n", 5*time.Second, other)), []string{"disconnected n echo"}, 20 * time.Second},
		{"came back, not answered yet", with(left("n", 10*time.Second, pending), open("n", 5*time.Second, pending)), []string{"disconnected n echo", "pending n echo"}, 20 * time.Second},
		{"another stream was there before", with(left("n", 10*time.Second, pending), held("n", time.Minute, echo)), []string{"disconnected n echo"}, 20 * time.Second},
		{"another node is clear", with(left("n", 10*time.Second, pending), held("m", 5*time.Second, echo)), []string{"disconnected n echo"}, 20 * time.Second},
		{
			"two left, one came back", with(left("n", 10*time.Second, pending), left("n", 9*time.Second, pending), held("n", 5*time.Second, echo)),
			[]string{"disconnected n echo"},
			20 * time.Second,
		},
		{"two left, two came back", with(left("n", 10*time.Second, pending), left("n", 4*time.Second, pending), held("n", 5*time.Second, echo), held("n", 3*time.Second, echo)), nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, next := drain.Decide(test.facts)
			var got []string
			for _, w := range r.Waits {
				got = append(got, strings.Join([]string{string(w.Reason), string(w.Node), w.Cluster}, " "))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
			if r.Drained != (len(test.want) == 0) {
				t.Errorf("drained: %v", r.Drained)
			}
			if want := now.Add(test.next); test.next == 0 && !next.IsZero() || test.next > 0 && !next.Equal(want) {
				t.Errorf("look again at %v, want %v from now", next.Sub(now), test.next)
			}
		})
	}
}

func TestInUse(t *testing.T) {
	inUse, over := drain.Use{}, drain.Use{Clean: 7}
	for _, test := range []struct {
		name string
		hold drain.Hold
		use  drain.Use
		want bool
	}{
		{"not subscribed", drain.Hold{}, inUse, false},
		{"newest form lists it", drain.Hold{Subscribed: true, Latest: true, Listed: true}, inUse, true},
		{"newest form does not, for this node", drain.Hold{Subscribed: true, Latest: true}, inUse, false},
		{"behind, while some form lists it", drain.Hold{Subscribed: true, Past: true}, inUse, true},
		{"behind, with a form from after the end", drain.Hold{Subscribed: true, Past: true}, over, false},
		{"behind, with a form from before", drain.Hold{Subscribed: true}, over, true},
		{"newest", drain.Hold{Subscribed: true, Latest: true}, over, false},
	} {
		if got := test.hold.InUse(test.use); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func drawFacts(t *rapid.T) drain.Facts {
	reasons := []drain.Reason{drain.Pending, drain.Stale, drain.Rejected}
	stream := rapid.Custom(func(t *rapid.T) drain.Stream {
		s := open(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "node"), time.Duration(rapid.IntRange(0, 60).Draw(t, "connected"))*time.Second)
		for _, r := range []mesh.ResourceName{echo, other} {
			switch rapid.IntRange(0, 2).Draw(t, r.Name) {
			case 1:
				s.Claims = append(s.Claims, claim(r, rapid.SampledFrom(reasons).Draw(t, "reason")))
			case 2:
				s.Clear = append(s.Clear, r)
			}
		}
		if rapid.Bool().Draw(t, "left") {
			s.LeftAt = ago(time.Duration(rapid.IntRange(0, 60).Draw(t, "left at")) * time.Second)
		}
		return s
	})
	return drain.Facts{
		Now: now, ReadyAt: ago(time.Duration(rapid.IntRange(25, 60).Draw(t, "ready")) * time.Second), Known: true,
		Streams: rapid.SliceOfN(stream, 0, 6).Draw(t, "streams"),
	}
}

// TestDecideIsCautious: no order of the streams and no further claim makes a
// target drained; drained means that no open stream claims it, and no
// node that left lately is without a stream since then.
func TestDecideIsCautious(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		r, next := drain.Decide(f)
		if r.Drained != (len(r.Waits) == 0) {
			t.Fatalf("drained %v with waits %v", r.Drained, r.Waits)
		}
		if !next.IsZero() && !next.After(now) {
			t.Fatalf("look again at %v, which is over", next)
		}
		shuffled := f
		shuffled.Streams = rapid.Permutation(f.Streams).Draw(t, "order")
		if again, _ := drain.Decide(shuffled); again.Drained != r.Drained {
			t.Fatalf("another order: drained %v, was %v", again.Drained, r.Drained)
		}
		more := f
		more.Streams = append(slices.Clone(f.Streams), open("c", time.Minute, claim(echo, drain.Pending)))
		if again, _ := drain.Decide(more); again.Drained {
			t.Fatal("drained with an open claim")
		}
		if !r.Drained {
			return
		}
		for _, s := range f.Streams {
			switch {
			case len(s.Claims) == 0:
			case s.LeftAt.IsZero():
				t.Fatalf("drained, but %s claims it", s.Node)
			case now.Sub(s.LeftAt) < drain.Grace && !slices.ContainsFunc(f.Streams, func(n drain.Stream) bool {
				return n.Node == s.Node && n.LeftAt.IsZero() && n.ConnectedAt.After(s.LeftAt)
			}):
				t.Fatalf("drained, but %s left lately and has no stream since", s.Node)
			}
		}
	})
}

func TestReportIsBounded(t *testing.T) {
	f := drain.Facts{Now: now, ReadyAt: ago(time.Hour), Known: true}
	for i := range drain.MaxWaits + 20 {
		f.Streams = append(f.Streams, open("n"+strings.Repeat("x", i), time.Minute, claim(echo, drain.Pending)))
	}
	if r, _ := drain.Decide(f); len(r.Waits) != drain.MaxWaits || r.LeftOut != 20 || r.Drained {
		t.Errorf("%d waits, %d left out, drained %v", len(r.Waits), r.LeftOut, r.Drained)
	}
}
