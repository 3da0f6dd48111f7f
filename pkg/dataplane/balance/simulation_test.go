package balance_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/balance"
)

// answerOf is what an endpoint does with a request that comes at a moment.
type answerOf func(port uint16, at time.Duration) (took time.Duration, ok bool)

// played is what came of a simulation: how often each port was picked in each second.
type played struct {
	perSecond []map[uint16]int
	failed    int
	peak      map[uint16]int64
}

func (p *played) sum(from, to int) map[uint16]int {
	sum := map[uint16]int{}
	for _, s := range p.perSecond[from:to] {
		for port, n := range s {
			sum[port] += n
		}
	}
	return sum
}

// play sends a request every gap, in simulated time; entries gives who is there from a moment on.
func play(length, gap time.Duration, picker func(at time.Duration) *balance.Picker, answer answerOf) *played {
	type flight struct {
		ends, took time.Duration
		ok         bool
		load       *balance.Load
	}
	start := time.Unix(1e9, 0)
	var flights []flight
	out := &played{peak: map[uint16]int64{}}
	for at := time.Duration(0); at < length; at += gap {
		flights = slices.DeleteFunc(flights, func(f flight) bool {
			if f.ends > at {
				return false
			}
			f.load.Observe(start.Add(f.ends), f.took, f.ok)
			f.load.End()
			return true
		})
		if int(at/time.Second) == len(out.perSecond) {
			out.perSecond = append(out.perSecond, map[uint16]int{})
		}
		e := picker(at).Pick(balance.Request{Now: start.Add(at)})
		port := e.Address.Port()
		out.perSecond[len(out.perSecond)-1][port]++
		e.Load.Begin()
		out.peak[port] = max(out.peak[port], e.Load.InFlight())
		took, ok := answer(port, at)
		if !ok {
			out.failed++
		}
		flights = append(flights, flight{at + took, took, ok, e.Load})
	}
	return out
}

func always(p *balance.Picker) func(time.Duration) *balance.Picker {
	return func(time.Duration) *balance.Picker { return p }
}

// One endpoint of ten becomes ten times slower after 20 s, and fast again
// after 60 s: it must lose nearly all of its share within seconds, keep a
// little, and have its share back within three times the decay.
func TestOneTenTimesSlower(t *testing.T) {
	entries := fleet(1, 0, 10, 0, 0)
	got := play(120*time.Second, time.Millisecond, always(least(entries)), func(port uint16, at time.Duration) (time.Duration, bool) {
		if port == 1 && at >= 20*time.Second && at < 60*time.Second {
			return 100 * time.Millisecond, true
		}
		return 10 * time.Millisecond, true
	})
	fair := 1000 // requests a second, by ten endpoints, in ten seconds
	if n := got.sum(10, 20)[1]; n < fair*9/10 || n > fair*11/10 {
		t.Errorf("equal: %d of %d", n, fair)
	}
	if n := got.sum(22, 32)[1]; n > fair/5 || n == 0 {
		t.Errorf("slow for 2 s: %d of a fair %d", n, fair)
	}
	if n := got.sum(92, 102)[1]; n < fair*3/4 {
		t.Errorf("fast for 32 s: %d of a fair %d", n, fair)
	}
	if got.peak[1] > 12 {
		t.Errorf("%d in flight on the slow one", got.peak[1])
	}
}

// However often it fails in a row, an endpoint is tried again within half a
// minute: its estimate must not grow without bound.
func TestNoneIsBanished(t *testing.T) {
	entries := fleet(1, 0, 5, 0, 0)
	got := play(120*time.Second, 2*time.Millisecond, always(least(entries)), func(port uint16, at time.Duration) (time.Duration, bool) {
		return 10 * time.Millisecond, port != 1 || at > 40*time.Second
	})
	var load balance.Load
	now := time.Unix(1e9, 0)
	load.Observe(now, 10*time.Millisecond, true)
	for range 20 {
		now = now.Add(100 * time.Millisecond)
		load.Observe(now, time.Millisecond, false)
	}
	if e := load.EWMA(now); e > 1100*time.Millisecond {
		t.Errorf("estimate %s after twenty failures", e)
	}
	if got.sum(10, 40)[1] == 0 || got.sum(90, 100)[1] < 10*100/2 {
		t.Errorf("%d requests in 30 s while it fails; %d in 10 s, 50 s after it stopped, a fair share is 1000", got.sum(10, 40)[1], got.sum(90, 100)[1])
	}
}

// One of five fails 30% of its requests at once: to fail fast must not pay.
func TestOneFailsAThird(t *testing.T) {
	entries := fleet(1, 0, 5, 0, 0)
	got := play(60*time.Second, 2*time.Millisecond, always(least(entries)), func(port uint16, at time.Duration) (time.Duration, bool) {
		if port == 1 && (at/(2*time.Millisecond))%10 < 3 {
			return time.Millisecond, false
		}
		return 10 * time.Millisecond, true
	})
	sum := got.sum(5, 60)
	if fair := 55 * 500 / 5; sum[1] > fair/5 || sum[1] == 0 {
		t.Errorf("the failing one got %d, a fair share is %d", sum[1], fair)
	}
	if got.failed > 30_000*15/1000 {
		t.Errorf("%d of 30000 failed; without balancing 1,800 would", got.failed)
	}
}

// A new one of five gets its share at once, without being flooded; with slow start little by little.
func TestOneNew(t *testing.T) {
	for _, window := range []time.Duration{0, 20 * time.Second} {
		t.Run(fmt.Sprint("slow start ", window), func(t *testing.T) {
			cfg := balance.Config{SlowStart: balance.SlowStart{Window: window}}
			entries := fleet(1, 0, 5, 0, 0)
			entries[0].Since = time.Unix(1e9+10, 0)
			before := balance.New(cfg, entries[1:], nil)
			after := balance.New(cfg, entries, before)
			got := play(60*time.Second, 2*time.Millisecond, func(at time.Duration) *balance.Picker {
				if at < 10*time.Second {
					return before
				}
				return after
			}, func(uint16, time.Duration) (time.Duration, bool) { return 10 * time.Millisecond, true })
			first, second, later := got.sum(10, 11)[1], got.sum(20, 21)[1], got.sum(40, 41)[1]
			if window == 0 && (first < 65 || first > 150) {
				t.Errorf("%d of 500 in its first second, a fair share is 100", first)
			}
			if window > 0 && (first > 50 || second < 25 || second > 100) {
				t.Errorf("%d in its first second, %d in its eleventh; want about 15 and 60", first, second)
			}
			if later < 60 || later > 140 {
				t.Errorf("%d of 500 after 30 s", later)
			}
		})
	}
}

// Retry-After is honoured while there are others, for at most 300 s.
func TestRetryAfter(t *testing.T) {
	now := time.Unix(1e9, 0)
	entries := fleet(1, 0, 3, 0, 0)
	p := least(entries)
	picks := func(at time.Duration) (n int) {
		// Nothing but its wish speaks against the first: it is by far the fastest.
		for i, e := range entries {
			e.Load.Observe(now.Add(at), time.Duration(1+i*100)*time.Millisecond, true)
		}
		for range 300 {
			if p.Pick(balance.Request{Now: now.Add(at)}) == entries[0] {
				n++
			}
		}
		return n
	}
	entries[0].Load.Avoid(now, time.Hour)
	if n := picks(299 * time.Second); n > 0 {
		t.Errorf("picked %d of 300 times while it wants to be left alone", n)
	}
	if n := picks(301 * time.Second); n < 50 {
		t.Errorf("picked %d of 300 times after 301 s", n)
	}
	for _, e := range entries {
		e.Load.Avoid(now, time.Second)
	}
	if n := picks(0); n < 50 {
		t.Errorf("all want to be left alone: picked %d of 300 times", n)
	}
}

// An endpoint that lets every request hang is known to be slow before any answer comes.
func TestOutlast(t *testing.T) {
	now := time.Unix(1e9, 0)
	var l balance.Load
	l.Observe(now, 10*time.Millisecond, true)
	l.Outlast(now, time.Second)
	if got := l.EWMA(now); got != time.Second {
		t.Errorf("estimate %s after a wait of 1 s", got)
	}
	l.Outlast(now, time.Millisecond)
	if got := l.EWMA(now); got != time.Second {
		t.Errorf("estimate %s: a short wait says nothing", got)
	}
}

// An endpoint that keeps requests waiting for 10 s, and is well again then, has next to nothing at first, and its
// share after 85 s at the latest (docs/dataplane.md).
func TestBackAfterATimeout(t *testing.T) {
	entries := fleet(1, 0, 5, 0, 0)
	got := play(140*time.Second, 5*time.Millisecond, always(least(entries)), func(port uint16, at time.Duration) (time.Duration, bool) {
		if port == 1 && at >= 20*time.Second && at < 30*time.Second {
			return 30*time.Second - at, true
		}
		return 2 * time.Millisecond, true
	})
	fair := 400 // requests by five endpoints, in ten seconds
	if n := got.sum(30, 60)[1]; n > 3*fair/10 {
		t.Errorf("%d in the first 30 s, of a fair %d", n, 3*fair)
	}
	if n := got.sum(115, 125)[1]; n < fair*3/4 {
		t.Errorf("%d after 85 s, want %d", n, fair)
	}
}
