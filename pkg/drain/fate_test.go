package drain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestFate(t *testing.T) {
	p := drain.NewPlaces()
	check := func(what string, at time.Time, want drain.Fate) {
		t.Helper()
		if got := p.Fate(key(mesh.KindPod, "a"), at); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	later := func(d time.Duration) time.Time { return now.Add(d) }
	ended := pod("a")
	ended.Ended = true
	check("nothing is known", now, drain.Fate{})
	p.Delete(ended.Meta, now)
	check("deleted, and never seen", now, drain.Fate{})
	p.Put(pod("a"), now)
	check("it runs", now, drain.Fate{State: drain.Runs})
	p.Put(ended, later(time.Second))
	p.Put(ended, later(2*time.Second))
	check("ended", later(time.Minute), drain.Fate{State: drain.Ended, At: later(time.Second)})
	p.Delete(mesh.Meta{Key: ended.Key, UID: "another"}, later(3*time.Second))
	check("another was deleted", later(time.Minute), drain.Fate{State: drain.Ended, At: later(time.Second)})
	p.Delete(ended.Meta, later(4*time.Second))
	check("deleted", later(time.Minute), drain.Fate{State: drain.Deleted, At: later(4 * time.Second)})
	check("long ago", later(11*time.Minute), drain.Fate{})
	again := pod("a")
	again.UID = "uid-2"
	p.Put(again, later(5*time.Second))
	check("it came again", later(5*time.Second), drain.Fate{State: drain.Runs})

	rewound := again.Meta
	rewound.Rewinds = 1
	p.Delete(rewound, later(6*time.Second))
	check("the server went back to before it", later(6*time.Second), drain.Fate{})
}

// TestFateIsBounded: the oldest are forgotten, but not what came again meanwhile.
func TestFateIsBounded(t *testing.T) {
	p := drain.NewPlaces()
	die := func(i int) mesh.Key {
		o := pod(fmt.Sprint("p", i))
		p.Put(o, now)
		p.Delete(o.Meta, now)
		return o.Key
	}
	check := func(pod mesh.Key, want drain.FateState) {
		t.Helper()
		if got := p.Fate(pod, now).State; got != want {
			t.Errorf("%s: %q, want %q", pod, got, want)
		}
	}
	old, again := die(0), die(1)
	for i := range 10_000 {
		die(100 + i)
		if i == 9_000 {
			p.Put(pod("p1"), now)
		}
	}
	check(old, drain.FateUnknown)
	check(again, drain.Runs)
	check(die(2), drain.Deleted)
}

// TestDecideFate: a proxy that left counts unless its pod is gone, and whoever waits is told which it is.
func TestDecideFate(t *testing.T) {
	key := key(mesh.KindPod, "client")
	for _, test := range []struct {
		name string
		fate drain.Fate
		// heard is for how long the proxy has said nothing.
		heard  time.Duration
		detail string
	}{
		{"deleted", drain.Fate{State: drain.Deleted, At: ago(4 * time.Second)}, 5 * time.Second, ""},
		{"deleted before its stream ended, and silent since", drain.Fate{State: drain.Deleted, At: ago(20 * time.Second)}, 30 * time.Second, ""},
		{"ended", drain.Fate{State: drain.Ended, At: ago(time.Second)}, 5 * time.Second, ""},
		{"runs", drain.Fate{State: drain.Runs}, 5 * time.Second, "left before it acknowledged; its pod default/client still runs"},
		{"unknown", drain.Fate{}, 5 * time.Second, "left before it acknowledged; nothing tells that its pod default/client is gone"},
		{
			"answered after it was deleted",
			drain.Fate{State: drain.Deleted, At: ago(20 * time.Second)},
			10 * time.Second,
			"left before it acknowledged; it answered after its pod default/client was said to be gone",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := left("n", 5*time.Second, claim(echo, drain.Pending))
			s.Pod, s.HeardAt = key, ago(test.heard)
			f := drain.Facts{Now: now, ReadyAt: ago(time.Hour), Known: true, Streams: []drain.Stream{s}, Fates: map[mesh.Key]drain.Fate{key: test.fate}}
			r, _ := drain.Decide(f)
			detail := ""
			if len(r.Waits) > 0 {
				detail = r.Waits[0].Detail
			}
			if r.Drained != (test.detail == "") || detail != test.detail {
				t.Errorf("drained %v, %q, want %q", r.Drained, detail, test.detail)
			}
			// A stream that is open shows that its proxy runs, whatever is said of its pod.
			s.LeftAt = time.Time{}
			f.Streams = []drain.Stream{s}
			if r, _ := drain.Decide(f); r.Drained {
				t.Error("an open stream does not count")
			}
		})
	}
	if r, _ := drain.Decide(drain.Facts{
		Now: now, ReadyAt: ago(time.Hour), Known: true, Streams: []drain.Stream{left("n", time.Second, claim(echo, drain.Pending))},
		Fates: map[mesh.Key]drain.Fate{{}: {State: drain.Deleted, At: now}},
	}); r.Drained || r.Waits[0].Detail != "left before it acknowledged" {
		t.Errorf("without a pod: %+v", r)
	}
}
