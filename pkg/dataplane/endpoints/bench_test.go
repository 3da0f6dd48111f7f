package endpoints_test

import (
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// big is a cluster of so many endpoints that dials nothing.
func big(b *testing.B, n int) (*endpoints.Set, *discovery.Cluster) {
	b.Helper()
	w := &world{dead: map[string]bool{}, probes: map[string]int{}}
	set := endpoints.New(endpoints.Config{Reporter: w, NewUpstream: func(c upstream.Config) upstream.Upstream { return &fake{w: w, cfg: c} }})
	b.Cleanup(set.Close)
	dc := &discovery.Cluster{Name: "c"}
	for i := range n {
		ip := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		dc.Endpoints = append(dc.Endpoints, mesh.Endpoint{EndpointKey: mesh.EndpointKey{Address: netip.AddrPortFrom(ip, 80)}, Weight: 1})
	}
	_ = set.Apply(dc)
	return set, dc
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

// BenchmarkApply is an assignment of 10,000 endpoints in which one changed its
// health.
func BenchmarkApply(b *testing.B) {
	set, dc := big(b, 10_000)
	b.ReportAllocs()
	report := reportShare(b)
	for i := 0; b.Loop(); i++ {
		next := *dc
		next.Endpoints = append([]mesh.Endpoint(nil), dc.Endpoints...)
		e := &next.Endpoints[i*7919%len(next.Endpoints)]
		if e.Health = mesh.Draining - e.Health; e.Health != mesh.Draining {
			e.Health = mesh.Healthy
		}
		_ = set.Apply(&next)
		dc = &next
	}
	report()
}

// BenchmarkEject is one of 10,000 that is found dead.
func BenchmarkEject(b *testing.B) {
	set, _ := big(b, 10_000)
	c := set.Cluster("c")
	b.ReportAllocs()
	report := reportShare(b)
	for b.Loop() {
		l, err := c.Acquire(b.Context(), endpoints.Request{})
		if err != nil {
			b.Fatal(err)
		}
		l.DialFailed(upstream.ConnectRefused)
	}
	report()
}

// BenchmarkAcquire is the hot path.
func BenchmarkAcquire(b *testing.B) {
	set, dc := big(b, 100)
	next := *dc
	o := discovery.DefaultOutlier
	next.Outlier = &o
	_ = set.Apply(&next)
	c := set.Cluster("c")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l, err := c.Acquire(b.Context(), endpoints.Request{})
			if err != nil {
				b.Error(err)
				return
			}
			l.Connected()
			l.Response(200, http.Header(nil))
			l.End(true)
		}
	})
}
