package balance_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/freshmesh/freshmesh/pkg/dataplane/balance"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func entry(port int, change ...func(*balance.Entry)) *balance.Entry {
	e := &balance.Entry{
		Endpoint: mesh.Endpoint{EndpointKey: mesh.EndpointKey{Address: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(port))}, Weight: 1},
		Load:     new(balance.Load),
	}
	for _, f := range change {
		f(e)
	}
	return e
}

func health(h mesh.Health) func(*balance.Entry) { return func(e *balance.Entry) { e.Health = h } }
func priority(p uint32) func(*balance.Entry)    { return func(e *balance.Entry) { e.Priority = p } }
func weight(w uint32) func(*balance.Entry)      { return func(e *balance.Entry) { e.Weight = w } }
func ejected(e *balance.Entry)                  { e.Out = balance.Gone }

func doubted(e *balance.Entry) { e.Out = balance.Doubted }

func least(entries []*balance.Entry) *balance.Picker {
	return balance.New(balance.Config{}, entries, nil)
}

func TestWhoIsPicked(t *testing.T) {
	for _, c := range []struct {
		name    string
		entries []*balance.Entry
		// want is the ports in the order in which retries reach their tiers.
		want [][]uint16
	}{
		{"none", nil, nil},
		{"healthy before degraded", []*balance.Entry{entry(1, health(mesh.Degraded)), entry(2), entry(3), entry(4)}, [][]uint16{{2, 3, 4}, {1}}},
		{"draining and unhealthy never", []*balance.Entry{entry(1, health(mesh.Draining)), entry(2, health(mesh.Unhealthy))}, nil},
		{"ejected never", []*balance.Entry{entry(1, ejected), entry(2)}, [][]uint16{{2}}},
		{"doubted not while there are others", []*balance.Entry{entry(1, doubted), entry(2)}, [][]uint16{{2}}},
		{"doubted before nothing", []*balance.Entry{entry(1, doubted), entry(2, ejected), entry(3, health(mesh.Draining), doubted)}, [][]uint16{{1}}},
		{"degraded after the healthy of the next priority", []*balance.Entry{entry(1, priority(1)), entry(2, health(mesh.Degraded)), entry(3, ejected)}, [][]uint16{{1}, {2}}},
	} {
		for _, policy := range []balance.Policy{balance.LeastRequest, balance.RoundRobin, balance.Random, balance.RingHash, balance.Maglev} {
			t.Run(fmt.Sprint(c.name, policy), func(t *testing.T) {
				p := balance.New(balance.Config{Policy: policy}, c.entries, nil)
				var tried []mesh.EndpointKey
				for i, tier := range c.want {
					for range tier {
						e := p.Pick(balance.Request{Now: time.Now(), Tried: tried, Hash: rand.Uint64()})
						if e == nil || !slices.Contains(tier, e.Address.Port()) {
							t.Fatalf("tier %d: picked %+v, want one of %v", i, e, tier)
						}
						tried = append(tried, e.EndpointKey)
					}
				}
				if e := p.Pick(balance.Request{Now: time.Now(), Tried: tried}); e != nil {
					t.Errorf("then picked %+v", e)
				}
				if p.Usable() != len(tried) {
					t.Errorf("usable %d, want %d", p.Usable(), len(tried))
				}
			})
		}
	}
}

// simulation runs requests through a picker in simulated time, one that
// arrives every gap; latency gives how long an endpoint takes.
func simulation(p *balance.Picker, entries []*balance.Entry, length, gap time.Duration, latency func(port uint16, at time.Duration) time.Duration) map[uint16]int {
	type running struct {
		ends time.Duration
		took time.Duration
		load *balance.Load
	}
	start := time.Unix(1e9, 0)
	loads := map[uint16]*balance.Load{}
	for _, e := range entries {
		loads[e.Address.Port()] = e.Load
	}
	var flights []running
	counts := map[uint16]int{}
	for at := time.Duration(0); at < length; at += gap {
		flights = slices.DeleteFunc(flights, func(f running) bool {
			if f.ends > at {
				return false
			}
			f.load.Observe(start.Add(at), f.took, true)
			f.load.End()
			return true
		})
		port := p.Pick(balance.Request{Now: start.Add(at)}).Address.Port()
		counts[port]++
		loads[port].Begin()
		took := latency(port, at)
		flights = append(flights, running{at + took, took, loads[port]})
	}
	return counts
}

func TestSlowEndpointGetsLess(t *testing.T) {
	entries := []*balance.Entry{entry(1), entry(2), entry(3)}
	counts := simulation(least(entries), entries, time.Minute, 5*time.Millisecond,
		func(port uint16, _ time.Duration) time.Duration {
			if port == 1 {
				return 100 * time.Millisecond
			}
			return 10 * time.Millisecond
		})
	if counts[1]*5 > counts[2] || counts[1]*5 > counts[3] {
		t.Errorf("ten times slower endpoint got %d, the others %d and %d", counts[1], counts[2], counts[3])
	}
	if counts[1] == 0 {
		t.Error("slow endpoint is starved")
	}
}

// A process that dies takes all that is in flight with it: that is one failure,
// and not ten to the power of the requests.
func TestBurstOfFailuresCountsOnce(t *testing.T) {
	now := time.Unix(1e9, 0)
	var one, burst balance.Load
	for _, l := range []*balance.Load{&one, &burst} {
		l.Observe(now, 5*time.Millisecond, true)
	}
	now = now.Add(time.Second)
	one.Observe(now, time.Millisecond, false)
	for i := range 8 {
		burst.Observe(now.Add(time.Duration(i)*time.Microsecond), time.Millisecond, false)
	}
	now = now.Add(time.Millisecond)
	if o, b := one.EWMA(now), burst.EWMA(now); b > o+o/10 {
		t.Errorf("estimate after one failure %s, after a burst of them %s", o, b)
	}
	burst.Observe(now.Add(time.Second), time.Millisecond, false)
	if o, b := one.EWMA(now), burst.EWMA(now.Add(time.Second)); b < 5*o {
		t.Errorf("a failure that began later counts for nothing: %s, before %s", b, o)
	}
}

// Requests one after another to two equal endpoints: the one that happened to be
// faster by microseconds must not get nearly all of them.
func TestEqualEndpointsShare(t *testing.T) {
	entries := []*balance.Entry{entry(1), entry(2)}
	counts := simulation(least(entries), entries, 10*time.Second, 10*time.Millisecond,
		func(port uint16, at time.Duration) time.Duration {
			return 300*time.Microsecond + time.Duration(port)*20*time.Microsecond + at%7*time.Microsecond
		})
	if counts[1] < 300 || counts[2] < 300 {
		t.Errorf("of 1,000 requests %d and %d", counts[1], counts[2])
	}
}

func TestRecoveredEndpointIsUsedAgain(t *testing.T) {
	entries := []*balance.Entry{entry(1), entry(2)}
	late := 0
	simulation(least(entries), entries, 2*time.Minute, 5*time.Millisecond,
		func(port uint16, at time.Duration) time.Duration {
			if port == 1 && at < 10*time.Second {
				return 2 * time.Second
			}
			if port == 1 && at > time.Minute+30*time.Second {
				late++
			}
			return 10 * time.Millisecond
		})
	// 6,000 requests in the last half minute.
	if late < 1500 {
		t.Errorf("endpoint that recovered 80 s ago got %d of 6000", late)
	}
}

func TestNewEndpointIsUsedAtOnce(t *testing.T) {
	entries := []*balance.Entry{entry(1), entry(2)}
	now := time.Unix(1e9, 0)
	entries[0].Load.Begin()
	entries[0].Load.Observe(now, 200*time.Microsecond, true)
	entries[0].Load.End()
	counts := simulation(least(entries), entries, time.Second, time.Millisecond,
		func(uint16, time.Duration) time.Duration { return 200 * time.Microsecond })
	if counts[2] < 300 {
		t.Errorf("new endpoint got %d of 1000", counts[2])
	}
}

func TestLoad(t *testing.T) {
	now := time.Unix(1e9, 0)
	var l balance.Load
	if got := l.EWMA(now); got != 30*time.Millisecond {
		t.Errorf("seed %s", got)
	}
	l.Observe(now, 10*time.Millisecond, true)
	l.Observe(now, time.Second, true)
	if got := l.EWMA(now); got != time.Second {
		t.Errorf("a peak gives %s", got)
	}
	l.Observe(now, 10*time.Millisecond, true)
	if got := l.EWMA(now); got < 900*time.Millisecond {
		t.Errorf("one fast answer after a peak gives %s", got)
	}
	if got := l.EWMA(now.Add(10 * time.Second)); got > 400*time.Millisecond || got < 300*time.Millisecond {
		t.Errorf("after 10 s %s, want about 1/e of a second", got)
	}
	var f balance.Load
	f.Observe(now, 10*time.Millisecond, true)
	f.Observe(now, time.Millisecond, false)
	if got := f.EWMA(now); got < 90*time.Millisecond {
		t.Errorf("a failure gives %s", got)
	}
	// In flight and weight: score = ewma × (in flight / weight + 1).
	one := f.Score(now, 1)
	f.Begin()
	if two := f.Score(now, 1); two != 2*one {
		t.Errorf("one in flight: %v, want %v", two, 2*one)
	}
	if light := f.Score(now, 4); light != one*1.25 {
		t.Errorf("one in flight, weight 4: %v, want %v", light, one*1.25)
	}
}

func TestRoundRobinByWeight(t *testing.T) {
	entries := []*balance.Entry{entry(1, weight(1)), entry(2, weight(2)), entry(3, weight(3))}
	p := balance.New(balance.Config{Policy: balance.RoundRobin}, entries, nil)
	counts, last, most, run := map[uint16]int{}, uint16(0), 0, 0
	for range 600 {
		port := p.Pick(balance.Request{}).Address.Port()
		counts[port]++
		if run++; port != last {
			last, run = port, 1
		}
		most = max(most, run)
	}
	if counts[1] != 100 || counts[2] != 200 || counts[3] != 300 || most > 2 {
		t.Errorf("counts %v, longest run %d", counts, most)
	}
}

func TestRingMovesLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(t, "endpoints")
		gone := rapid.IntRange(0, n-1).Draw(t, "gone")
		var entries []*balance.Entry
		for i := range n {
			entries = append(entries, entry(i+1, weight(uint32(rapid.IntRange(1, 5).Draw(t, "weight")))))
		}
		cfg := balance.Config{Policy: balance.RingHash}
		before := balance.New(cfg, entries, nil)
		left := slices.Clone(entries)
		left[gone] = new(*entries[gone])
		left[gone].Out = balance.Gone
		after := balance.New(cfg, left, before)
		for range 50 {
			h := rapid.Uint64().Draw(t, "hash")
			a, b := before.Pick(balance.Request{Hash: h}), after.Pick(balance.Request{Hash: h})
			if a != b && a != entries[gone] {
				t.Fatalf("hash %d moved from %v to %v", h, a.EndpointKey, b.EndpointKey)
			}
		}
	})
}
