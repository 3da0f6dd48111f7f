package balance_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/freshmesh/freshmesh/pkg/dataplane/balance"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// fleet makes so many entries of each kind at one priority; ports go on from first.
func fleet(first int, p uint32, healthy, degraded, out int, change ...func(*balance.Entry)) []*balance.Entry {
	var all []*balance.Entry
	add := func(n int, f ...func(*balance.Entry)) {
		for range n {
			all = append(all, entry(first+len(all), slices.Concat([]func(*balance.Entry){priority(p)}, f, change)...))
		}
	}
	add(healthy)
	add(degraded, health(mesh.Degraded))
	add(out, ejected)
	return all
}

// shares picks often and gives the parts by what name says of each entry.
func shares(p *balance.Picker, picks int, name func(*balance.Entry) string) map[string]float64 {
	got := map[string]float64{}
	for i := range picks {
		if e := p.Pick(balance.Request{Now: time.Unix(1e9, 0), Hash: uint64(i) * 0x9e3779b97f4a7c15}); e != nil {
			got[name(e)] += 1 / float64(picks)
		}
	}
	return got
}

func near(t *testing.T, got, want map[string]float64, within float64) {
	t.Helper()
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s got %.3f, want none", name, got[name])
		}
	}
	for name, w := range want {
		if math.Abs(got[name]-w) > within {
			t.Errorf("%s got %.3f, want %.3f", name, got[name], w)
		}
	}
}

// The numbers of Envoy's documentation ("Priority levels", "Degraded
// endpoints", "Panic threshold"), by its rule: 1.4 times the healthy part.
func TestPrioritiesOverflowAsEnvoyDocuments(t *testing.T) {
	where := func(e *balance.Entry) string { return fmt.Sprint("P", e.Priority, " ", e.Health) }
	for _, c := range []struct {
		name    string
		panic   float64
		entries []*balance.Entry
		want    map[string]float64
	}{
		{"72% are enough", 0, slices.Concat(fleet(1, 0, 72, 0, 28), fleet(200, 1, 100, 0, 0)), map[string]float64{"P0 HEALTHY": 1}},
		{"71% are not quite", 0, slices.Concat(fleet(1, 0, 71, 0, 29), fleet(200, 1, 100, 0, 0)), map[string]float64{"P0 HEALTHY": .994, "P1 HEALTHY": .006}},
		{"50%", 0, slices.Concat(fleet(1, 0, 50, 0, 50), fleet(200, 1, 100, 0, 0)), map[string]float64{"P0 HEALTHY": .7, "P1 HEALTHY": .3}},
		{"25% each, scaled up", 0, slices.Concat(fleet(1, 0, 25, 0, 75), fleet(200, 1, 25, 0, 75)), map[string]float64{"P0 HEALTHY": .5, "P1 HEALTHY": .5}},
		{"three levels", 0, slices.Concat(fleet(1, 0, 25, 0, 75), fleet(200, 1, 25, 0, 75), fleet(400, 2, 25, 0, 75)), map[string]float64{"P0 HEALTHY": .35, "P1 HEALTHY": .35, "P2 HEALTHY": .3}},
		{"degraded take what is over", 0, fleet(1, 0, 50, 50, 0), map[string]float64{"P0 HEALTHY": .7, "P0 DEGRADED": .3}},
		{"the next level's healthy come before the degraded", 0, slices.Concat(fleet(1, 0, 50, 50, 0), fleet(200, 1, 10, 90, 0)), map[string]float64{"P0 HEALTHY": .7, "P1 HEALTHY": .14, "P0 DEGRADED": .16}},
		{"those that leave are no part of the whole", 0, slices.Concat(fleet(1, 0, 50, 0, 0), fleet(60, 0, 50, 0, 0, health(mesh.Draining)), fleet(200, 1, 100, 0, 0)), map[string]float64{"P0 HEALTHY": 1}},
		{"panic", .5, fleet(1, 0, 20, 0, 0, health(mesh.Healthy)), map[string]float64{"P0 HEALTHY": 1}},
		{"panic below the threshold", .5, slices.Concat(fleet(1, 0, 20, 0, 0), fleet(60, 0, 80, 0, 0, health(mesh.Unhealthy))), map[string]float64{"P0 HEALTHY": .2, "P0 UNHEALTHY": .8}},
		{"no panic while another level can take it all", .5, slices.Concat(fleet(1, 0, 20, 0, 0), fleet(60, 0, 80, 0, 0, health(mesh.Unhealthy)), fleet(200, 1, 100, 0, 0)), map[string]float64{"P0 HEALTHY": .28, "P1 HEALTHY": .72}},
		{"no panic unless allowed", 0, slices.Concat(fleet(1, 0, 1, 0, 0), fleet(60, 0, 99, 0, 0, health(mesh.Unhealthy))), map[string]float64{"P0 HEALTHY": 1}},
		{"nobody is healthy", 0, fleet(1, 0, 3, 0, 0, health(mesh.Unhealthy)), nil},
		{"nobody is healthy, panic", .5, slices.Concat(fleet(1, 0, 3, 0, 0, health(mesh.Unhealthy)), fleet(10, 1, 1, 0, 0, health(mesh.Unhealthy))), map[string]float64{"P0 UNHEALTHY": .75, "P1 UNHEALTHY": .25}},
	} {
		for _, policy := range []balance.Policy{balance.LeastRequest, balance.RoundRobin, balance.Random, balance.RingHash, balance.Maglev} {
			t.Run(fmt.Sprint(c.name, policy), func(t *testing.T) {
				within := .035
				if policy == balance.RingHash {
					within = .25 // by the luck of the points
				}
				near(t, shares(balance.New(balance.Config{Policy: policy, Panic: c.panic}, c.entries, nil), 4_000, where), c.want, within)
			})
		}
	}
}

func at(zone string, w uint32) func(*balance.Entry) {
	return func(e *balance.Entry) { e.Zone, e.LocalityWeight = zone, w }
}

// "Locality weighted load balancing" of Envoy's documentation: weight times
// what is available of the locality, by the same factor of 1.4.
func TestLocalityWeights(t *testing.T) {
	zone := func(e *balance.Entry) string { return e.Zone }
	for _, c := range []struct {
		name    string
		entries []*balance.Entry
		want    map[string]float64
	}{
		{"all healthy", slices.Concat(fleet(1, 0, 10, 0, 0, at("x", 1)), fleet(50, 0, 2, 0, 0, at("y", 2))), map[string]float64{"x": 1. / 3, "y": 2. / 3}},
		{"x half unhealthy: 70% of its weight", slices.Concat(fleet(1, 0, 5, 0, 0, at("x", 1)), fleet(30, 0, 5, 0, 0, at("x", 1), health(mesh.Unhealthy)), fleet(50, 0, 10, 0, 0, at("y", 2))), map[string]float64{"x": .7 / 2.7, "y": 2 / 2.7}},
		{"no weight, no load", slices.Concat(fleet(1, 0, 5, 0, 0, at("x", 0)), fleet(50, 0, 5, 0, 0, at("y", 1))), map[string]float64{"y": 1}},
		{"no weights at all", slices.Concat(fleet(1, 0, 9, 0, 0, at("x", 0)), fleet(50, 0, 1, 0, 0, at("y", 0))), map[string]float64{"x": .9, "y": .1}},
	} {
		for _, policy := range []balance.Policy{balance.LeastRequest, balance.RoundRobin, balance.Random, balance.Maglev} {
			t.Run(fmt.Sprint(c.name, policy), func(t *testing.T) {
				p := balance.New(balance.Config{Policy: policy, LocalityWeighted: true}, c.entries, nil)
				near(t, shares(p, 4_000, zone), c.want, .035)
			})
		}
	}
}

func TestWeights(t *testing.T) {
	port := func(e *balance.Entry) string { return fmt.Sprint(e.Address.Port()) }
	for _, policy := range []balance.Policy{balance.LeastRequest, balance.RoundRobin, balance.Random, balance.Maglev, balance.RingHash} {
		for _, n := range []int{2, 10} {
			entries := []*balance.Entry{entry(1, weight(5))}
			for i := range n - 1 {
				entries = append(entries, entry(i+2))
			}
			want := map[string]float64{"1": 5 / float64(n+4)}
			for i := range n - 1 {
				want[fmt.Sprint(i+2)] = 1 / float64(n+4)
			}
			within := .02
			if policy == balance.RingHash {
				within = .1
			}
			near(t, shares(balance.New(balance.Config{Policy: policy}, entries, nil), 20_000, port), want, within)
		}
	}
}

func TestMaglev(t *testing.T) {
	t.Run("every process makes the same table", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.IntRange(1, 8).Draw(t, "endpoints")
			var entries []*balance.Entry
			for i := range n {
				entries = append(entries, entry(i+1, weight(uint32(rapid.IntRange(1, 4).Draw(t, "weight")))))
			}
			cfg := balance.Config{Policy: balance.Maglev, Table: 251}
			a := balance.New(cfg, entries, nil)
			b := balance.New(cfg, rapid.Permutation(entries).Draw(t, "order"), nil)
			for h := range uint64(251) {
				if x, y := a.Pick(balance.Request{Hash: h}), b.Pick(balance.Request{Hash: h}); x != y {
					t.Fatalf("hash %d: %v and %v", h, x.EndpointKey, y.EndpointKey)
				}
			}
		})
	})
	t.Run("even, and little moves", func(t *testing.T) {
		entries := fleet(1, 0, 50, 0, 0)
		cfg := balance.Config{Policy: balance.Maglev}
		before := balance.New(cfg, entries, nil)
		counts := map[*balance.Entry]int{}
		owners := make([]*balance.Entry, balance.DefaultTable)
		for h := range owners {
			owners[h] = before.Pick(balance.Request{Hash: uint64(h)})
			counts[owners[h]]++
		}
		for _, e := range entries {
			// The paper's bound: places differ by at most one turn.
			if n := counts[e]; n < balance.DefaultTable/50 || n > balance.DefaultTable/50+1 {
				t.Errorf("%v has %d places", e.EndpointKey, n)
			}
		}
		after := balance.New(cfg, entries[1:], before)
		moved := 0
		for h, o := range owners {
			if got := after.Pick(balance.Request{Hash: uint64(h)}); got != o && o != entries[0] {
				moved++
			}
		}
		// One of fifty left; the paper's figure 12 has about as many others move.
		if part := float64(moved) / float64(len(owners)); part > .04 {
			t.Errorf("%.3f of the places moved without need", part)
		}
	})
}

func TestRingSize(t *testing.T) {
	entries := fleet(1, 0, 2, 0, 0)
	even := func(cfg balance.Config) float64 {
		cfg.Policy = balance.RingHash
		got := shares(balance.New(cfg, entries, nil), 50_000, func(e *balance.Entry) string { return fmt.Sprint(e.Address.Port()) })
		return math.Abs(got["1"] - got["2"])
	}
	if big, small := even(balance.Config{MinRing: 1 << 16}), even(balance.Config{MinRing: 2, MaxRing: 2}); big > .05 || small < big {
		t.Errorf("two endpoints differ by %.3f on a ring of 65,536 points, by %.3f on one of 2", big, small)
	}
}

func TestSlowStart(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		name       string
		age        time.Duration
		aggression float64
		want       float64
	}{
		{"begins at the least", 0, 1, .1},
		{"half way", 30 * time.Second, 1, .5},
		{"half way, aggressive", 30 * time.Second, 2, .7071},
		{"over", 60 * time.Second, 1, 1},
	} {
		for _, policy := range []balance.Policy{balance.LeastRequest, balance.RoundRobin} {
			for _, n := range []int{2, 10} {
				t.Run(fmt.Sprint(c.name, policy, n), func(t *testing.T) {
					entries := fleet(1, 0, n, 0, 0)
					entries[0].Since = now.Add(-c.age)
					p := balance.New(balance.Config{Policy: policy, SlowStart: balance.SlowStart{Window: time.Minute, Aggression: c.aggression}}, entries, nil)
					got := 0.
					for range 20_000 {
						if p.Pick(balance.Request{Now: now}) == entries[0] {
							got += 1. / 20_000
						}
					}
					want := c.want / (float64(n-1) + c.want)
					if math.Abs(got-want) > .02 {
						t.Errorf("got %.3f of the requests, want %.3f", got, want)
					}
				})
			}
		}
	}
}

// An ejection moves the keys of the ejected endpoint, and nobody else's: also
// in a Maglev table, which would shuffle others if it were made anew.
func TestEjectionMovesNobodyElse(t *testing.T) {
	for _, policy := range []balance.Policy{balance.RingHash, balance.Maglev} {
		entries := fleet(1, 0, 20, 0, 0)
		cfg := balance.Config{Policy: policy}
		before := balance.New(cfg, entries, nil)
		out := slices.Clone(entries)
		for _, i := range []int{3, 4} {
			out[i] = new(*entries[i])
			out[i].Out = balance.Doubted + balance.Out(i-3)
		}
		after := balance.New(cfg, out, before)
		took := map[*balance.Entry]bool{}
		for h := range uint64(20_000) {
			h *= 0x9e3779b97f4a7c15
			a, b := before.Pick(balance.Request{Hash: h}), after.Pick(balance.Request{Hash: h})
			switch {
			case b.Out != balance.In:
				t.Fatalf("%v: picked one that is out", policy)
			case a == entries[3] || a == entries[4]:
				took[b] = true
			case a != b:
				t.Fatalf("%v: hash %d moved from %v to %v", policy, h, a.EndpointKey, b.EndpointKey)
			}
		}
		if len(took) < 10 {
			t.Errorf("%v: the keys of the ejected went to only %d others", policy, len(took))
		}
	}
}

// A ring that was made from another is the ring that would be made anew.
func TestRingMadeFromAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := balance.Config{Policy: balance.RingHash}
		draw := func(name string) []*balance.Entry {
			ports := rapid.SliceOfNDistinct(rapid.IntRange(1, 12), 1, 12, rapid.ID[int]).Draw(t, name)
			var all []*balance.Entry
			for _, p := range ports {
				all = append(all, entry(p, weight(uint32(rapid.IntRange(1, 2).Draw(t, "weight")))))
			}
			return all
		}
		p := balance.New(cfg, draw("first"), nil)
		for range 3 {
			next := draw("next")
			p = balance.New(cfg, next, p)
			anew := balance.New(cfg, next, nil)
			for range 30 {
				h := rapid.Uint64().Draw(t, "hash")
				if a, b := p.Pick(balance.Request{Hash: h}), anew.Pick(balance.Request{Hash: h}); a != b {
					t.Fatalf("hash %d: %v, made anew %v", h, a.EndpointKey, b.EndpointKey)
				}
			}
		}
	})
}
