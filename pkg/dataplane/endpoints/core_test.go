package endpoints

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

func TestTally(t *testing.T) {
	split := discovery.DefaultOutlier
	split.Split = true
	whole := discovery.DefaultOutlier
	gateway := discovery.DefaultOutlier
	gateway.EnforceConsecutive5xx, gateway.ConsecutiveGateway = 0, 3
	for _, c := range []struct {
		name   string
		o      discovery.Outlier
		events []event
		want   upstream.Reason
	}{
		{"four bad answers", whole, []event{answerBad, answerBad, answerBad, answerBad}, ""},
		{"five bad answers", whole, []event{answerBad, answerBad, answerGateway, answerBad, answerBad}, consecutive5xx},
		{"a good one between", whole, []event{answerBad, answerBad, answerGood, answerBad, answerBad, answerBad}, ""},
		{"gateway errors where only they count", gateway, []event{answerGateway, answerGateway, answerGateway}, consecutiveGateway},
		{"another 5xx breaks a row of gateway errors", gateway, []event{answerGateway, answerGateway, answerBad, answerGateway}, ""},
		{"resets count as 503", whole, []event{localBad, answerBad, localBad, localBad, localBad}, consecutive5xx},
		{"a connection says nothing of answers", whole, []event{localBad, localGood, answerBad, localGood, localBad, localBad, localBad}, consecutive5xx},
		{"apart: resets do not add to answers", split, []event{localBad, answerBad, localBad, answerBad, localBad, answerBad, answerBad}, ""},
		{"apart: five resets", split, []event{localBad, localBad, answerGood, localBad, localBad, localBad}, consecutiveLocal},
		{"apart: a connection between", split, []event{localBad, localBad, localGood, localBad, localBad, localBad}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got upstream.Reason
			var y tally
			for i, e := range c.events {
				if got != "" {
					t.Fatalf("%s after %d events", got, i)
				}
				got = y.note(&c.o, e)
			}
			if got != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

func TestSuccessRate(t *testing.T) {
	o := discovery.DefaultOutlier
	same := func(n int, good, all uint64) []rate {
		rs := make([]rate, n)
		for i := range rs {
			rs[i] = rate{good, all}
		}
		return rs
	}
	percent := o
	percent.EnforceFailurePercent, percent.SuccessRateHosts = 100, 99
	for _, c := range []struct {
		name  string
		o     discovery.Outlier
		rates []rate
		want  map[int]upstream.Reason
	}{
		{"all alike", o, same(10, 80, 100), nil},
		{"one of ten fails a third", o, append(same(9, 100, 100), rate{67, 100}), map[int]upstream.Reason{9: successRate}},
		{"too few endpoints", o, append(same(3, 100, 100), rate{10, 100}), nil},
		{"too few requests", o, append(same(9, 100, 100), rate{50, 99}), nil},
		{"within 1.9 deviations", o, []rate{{90, 100}, {95, 100}, {100, 100}, {92, 100}, {97, 100}, {89, 100}}, nil},
		{"failure percentage", percent, append(same(5, 100, 100), rate{10, 100}), map[int]upstream.Reason{5: failurePercentage}},
		{"failure percentage not reached", percent, append(same(5, 100, 100), rate{16, 100}), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := outliersOf(&c.o, c.rates, successRate, failurePercentage)
			if len(got) != len(c.want) {
				t.Fatalf("found %v, want %v", got, c.want)
			}
			for i, why := range c.want {
				if got[i] != why {
					t.Errorf("found %v, want %v", got, c.want)
				}
			}
		})
	}
}

// Whatever the numbers: an ejection lasts base × times, at most the maximum, and the jitter.
func TestEjectionTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := discovery.DefaultOutlier
		o.Jitter = time.Duration(rapid.IntRange(0, 5).Draw(t, "jitter")) * time.Second
		now := time.Unix(1e9, 0)
		var p opinion
		times := 0
		for _, eject := range rapid.SliceOf(rapid.Bool()).Draw(t, "steps") {
			if !eject {
				was := p.times
				p.calm()
				times = max(times-1, 0)
				if p.times != times {
					t.Fatalf("an interval without ejection makes %d of %d", p.times, was)
				}
				continue
			}
			times++
			p.eject(&o, now, consecutive5xx)
			least := min(time.Duration(times)*30*time.Second, 300*time.Second)
			if got := p.until.Sub(now); got < least || got > least+o.Jitter {
				t.Fatalf("ejection %d lasts %s, want %s and up to %s", times, got, least, o.Jitter)
			}
			p.readmit()
		}
	})
}

func TestShareThatMayBeEjected(t *testing.T) {
	o := discovery.DefaultOutlier
	for _, c := range []struct{ listed, want int }{{1, 1}, {2, 1}, {10, 1}, {19, 1}, {20, 2}, {100, 10}} {
		n := 0
		for mayEject(&o, n, c.listed) {
			n++
		}
		if n != c.want {
			t.Errorf("of %d endpoints %d may be ejected, want %d", c.listed, n, c.want)
		}
	}
	o.MaxPercent = 100
	if mayEject(&o, 5, 5) {
		t.Error("more than all")
	}
}

func TestPhases(t *testing.T) {
	now := time.Unix(1e9, 0)
	var a availability
	step := func(after time.Duration, want Phase) {
		t.Helper()
		now = now.Add(after)
		if got := a.phase(now, 3*time.Second); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	step(0, Serving)
	a.found(now, false)
	step(0, Waiting)
	a.found(now.Add(time.Second), false)
	step(2999*time.Millisecond, Waiting)
	step(time.Millisecond, FailingFast)
	if got := a.phase(now, 10*time.Second); got != Waiting {
		t.Errorf("%s for a request with more patience", got)
	}
	a.found(now, true)
	step(0, Serving)
	a.found(now, false)
	step(time.Second, Waiting)
}

// A trial that told nothing is followed by a pause, not by the next one at once.
func TestTrialThatToldNothing(t *testing.T) {
	now := time.Now()
	e := ejection{failures: 1, at: now, until: now, alone: now, onTrial: true}
	e.postpone(now)
	if e.onTrial || e.due(now, true) || e.due(now, false) || !e.due(now.Add(firstBackoff), true) {
		t.Errorf("%+v", e)
	}
}
