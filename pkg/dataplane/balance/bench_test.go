package balance_test

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/balance"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func many(n int) []*balance.Entry {
	all := make([]*balance.Entry, n)
	for i := range all {
		ip := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		all[i] = &balance.Entry{
			Endpoint: mesh.Endpoint{
				EndpointKey: mesh.EndpointKey{Address: netip.AddrPortFrom(ip, 80)}, Weight: 1,
				Zone: string(rune('a' + i*4/n)), LocalityWeight: 1,
			},
			Load: new(balance.Load),
		}
	}
	return all
}

var names = map[balance.Policy]string{
	balance.LeastRequest: "least-request", balance.RoundRobin: "round-robin", balance.Random: "random",
	balance.RingHash: "ring-hash", balance.Maglev: "maglev",
}

// reportShare gives what 100 turns of the loop a second take of a core, by the
// time that the process had of it: the machine may do other work.
func reportShare(b *testing.B) func() {
	b.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric((used()-before).Seconds()/float64(b.N)*100, "cores-at-100/s") }
}

// BenchmarkChange is one endpoint of 10,000 that goes out or comes back, or
// for "listed" one that takes another's place.
func BenchmarkChange(b *testing.B) {
	for policy, name := range names {
		for _, zones := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/zones=%v", name, zones), func(b *testing.B) {
				entries := many(10_000)
				cfg := balance.Config{Policy: policy, LocalityWeighted: zones}
				p := balance.New(cfg, entries, nil)
				b.ReportAllocs()
				report := reportShare(b)
				for i := 0; b.Loop(); i++ {
					j := i * 7919 % len(entries)
					changed := new(*entries[j])
					changed.Out = balance.Gone - changed.Out
					entries[j] = changed
					p = balance.New(cfg, entries, p)
				}
				report()
			})
		}
		b.Run(name+"/listed", func(b *testing.B) {
			entries := many(10_000)
			cfg := balance.Config{Policy: policy}
			p := balance.New(cfg, entries, nil)
			report := reportShare(b)
			for i := 0; b.Loop(); i++ {
				j := i * 7919 % len(entries)
				changed := new(*entries[j])
				changed.Address = netip.AddrPortFrom(changed.Address.Addr(), changed.Address.Port()%60_000+1)
				entries[j] = changed
				p = balance.New(cfg, entries, p)
			}
			report()
		})
	}
}

func BenchmarkPick(b *testing.B) {
	for policy, name := range names {
		b.Run(name, func(b *testing.B) {
			p := balance.New(balance.Config{Policy: policy}, many(10_000), nil)
			now := time.Now()
			for i := 0; b.Loop(); i++ {
				p.Pick(balance.Request{Now: now, Hash: uint64(i) * 0x9e3779b97f4a7c15})
			}
		})
	}
}

// What did not change is kept: a change in one locality makes nothing anew in the others.
func TestChangeRebuildsOnlyItsGroup(t *testing.T) {
	entries := many(1000)
	cfg := balance.Config{Policy: balance.RoundRobin, LocalityWeighted: true}
	p := balance.New(cfg, entries, nil)
	whole := testing.AllocsPerRun(5, func() { balance.New(cfg, entries, nil) })
	same := testing.AllocsPerRun(5, func() { balance.New(cfg, entries, p) })
	for i := range entries {
		if i%3 == 0 {
			entries[i] = new(*entries[i])
			entries[i].Weight = 7
		}
	}
	p = balance.New(cfg, entries, nil)
	weighted := testing.AllocsPerRun(5, func() { balance.New(cfg, entries, nil) })
	one := slices.Clone(entries)
	one[0] = new(*entries[0])
	one[0].Weight = 5
	changed := testing.AllocsPerRun(5, func() { balance.New(cfg, one, p) })
	if same >= whole || changed >= weighted*3/4 {
		t.Errorf("allocations: all anew %v, nothing changed %v; weighted all anew %v, one locality changed %v", whole, same, weighted, changed)
	}
}
