package drain_test

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/drain"
)

func TestSettler(t *testing.T) {
	const after = 250 * time.Millisecond
	pod, other := drain.Target{Namespace: "default", Pod: "a"}, drain.Target{Namespace: "default", Pod: "b"}
	once, again := []drain.Use{{Resource: echo, Clean: 7}}, []drain.Use{{Resource: echo, Clean: 9}}
	type look struct {
		at      time.Duration
		target  drain.Target
		drained bool
		uses    []drain.Use
		// since and until are from now; until 0: nothing to wait for.
		since, until time.Duration
	}
	for _, test := range []struct {
		name  string
		after time.Duration
		looks []look
	}{
		{"settles once", after, []look{
			{0, pod, false, once, 0, 0},
			{1, pod, true, once, 1, 1 + after},
			{after, pod, true, once, 1, 1 + after},
			{1 + after, pod, true, once, 0, 0},
			{2 + after, pod, true, once, 0, 0},
		}},
		{"in use in between", after, []look{
			{0, pod, true, once, 0, after},
			{100, pod, false, once, 0, 0},
			{after, pod, true, once, after, 2 * after},
		}},
		{"listed anew in between", after, []look{
			{0, pod, true, once, 0, after},
			{after, pod, true, again, after, 2 * after},
		}},
		{"each target by itself", after, []look{
			{0, pod, true, once, 0, after},
			{100, other, true, once, 100, 100 + after},
			{after, pod, true, once, 0, 0},
		}},
		{"not asked about for long", after, []look{
			{0, pod, true, once, 0, after},
			{time.Hour, pod, true, once, time.Hour, time.Hour + after},
		}},
		{"never listed", after, []look{{0, pod, true, nil, 0, 0}}},
		{"off", 0, []look{{0, pod, true, once, 0, 0}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := drain.NewSettler(test.after)
			for _, l := range test.looks {
				since, until := s.Look(l.target, l.drained, l.uses, now.Add(l.at))
				if l.until == 0 {
					if !since.IsZero() || !until.IsZero() {
						t.Errorf("at %v: wait until %v", l.at, until.Sub(now))
					}
					continue
				}
				if !since.Equal(now.Add(l.since)) || !until.Equal(now.Add(l.until)) {
					t.Errorf("at %v: since %v until %v, want %v and %v", l.at, since.Sub(now), until.Sub(now), l.since, l.until)
				}
			}
		})
	}
}

// TestSettlerIsBounded: with too many targets it forgets, and who is forgotten settles once more.
func TestSettlerIsBounded(t *testing.T) {
	s, uses := drain.NewSettler(time.Second), []drain.Use{{Resource: echo, Clean: 7}}
	target := func(i int) drain.Target { return drain.Target{Endpoint: drain.Endpoint{Port: uint16(i + 1)}} }
	for i := range 10_001 {
		s.Look(target(i), true, uses, now)
	}
	later := now.Add(2 * time.Second)
	if _, until := s.Look(target(10_000), true, uses, later); !until.IsZero() {
		t.Error("the newest is forgotten")
	}
	if _, until := s.Look(target(0), true, uses, later); until.IsZero() {
		t.Error("nothing is forgotten")
	}
}
