package discovery

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// TestFailedDiscoveryIsNotCached: whatever a discovery failed for, the next one
// after the cause is gone succeeds, and the state file knows nothing of it.
func TestFailedDiscoveryIsNotCached(t *testing.T) {
	bad := func(s *fakeServer) {
		s.set(mesh.TypeCluster, cds("a", "0", ""))
		s.set(mesh.TypeEndpoint, eds("a", "0", "no address"))
	}
	good := func(s *fakeServer) { s.service("a", "1", "10.0.0.1") }
	for _, test := range []struct {
		name        string
		fail, mend  func(s *fakeServer)
		want        error
		mendedAfter time.Duration
	}{
		{
			name: "nobody answers", want: ErrDiscoveryPending, mendedAfter: healBound,
			fail: func(s *fakeServer) { s.change(func() { s.deaf = true }) },
			mend: func(s *fakeServer) { s.change(func() { s.deaf = false }); good(s) },
		},
		{
			name: "the stream is refused", want: ErrDiscoveryPending, mendedAfter: healBound,
			fail: func(s *fakeServer) { s.change(func() { s.refuse = true }); s.cut() },
			mend: func(s *fakeServer) { s.change(func() { s.refuse = false }); good(s) },
		},
		{
			name: "incomplete: a cluster and no endpoints", want: ErrDiscoveryPending, mendedAfter: healBound,
			fail: func(s *fakeServer) { good(s); s.change(func() { s.never[mesh.TypeEndpoint] = true }) },
			mend: func(s *fakeServer) { s.change(func() { delete(s.never, mesh.TypeEndpoint) }) },
		},
		{
			name: "incomplete: endpoints and no cluster", want: ErrDiscoveryPending, mendedAfter: healBound,
			fail: func(s *fakeServer) { good(s); s.change(func() { s.never[mesh.TypeCluster] = true }) },
			mend: func(s *fakeServer) { s.change(func() { delete(s.never, mesh.TypeCluster) }) },
		},
		{name: "all that came was refused", fail: bad, mend: good, want: ErrDiscoveryPending},
		{name: "there is none", fail: func(*fakeServer) {}, mend: good, want: ErrUnknownService},
	} {
		t.Run(test.name, func(t *testing.T) {
			withState := func(c *Config) { c.StateDir = t.TempDir() }
			bubble(t, withState, func(w *world) {
				w.run()
				test.fail(w.server)
				synctest.Wait()
				for range 3 {
					if _, err := w.within(3*time.Second, "a"); !errors.Is(err, test.want) {
						t.Errorf("error %v, want %v", err, test.want)
					}
				}
				if c := w.applied.get("a"); c != nil {
					t.Errorf("in force: %+v", c)
				}
				pass(10 * time.Second) // for the state file
				if kept := w.core.Snapshot(); len(kept) != 0 {
					t.Errorf("the state file has %v", kept)
				}
				test.mend(w.server)
				pass(test.mendedAfter)
				w.must("a", "10.0.0.1")
			})
		})
	}
}

// TestFirstDiscoveryGoesOnToTheNextServer: the control plane that answers first is
// not one that ever will in full.
func TestFirstDiscoveryGoesOnToTheNextServer(t *testing.T) {
	for name, fault := range map[string]func(s *fakeServer){
		"this type never":   func(s *fakeServer) { s.never[mesh.TypeEndpoint] = true },
		"silent":            func(s *fakeServer) { s.deaf = true },
		"unreachable":       func(s *fakeServer) { s.unreachable = true },
		"refuses to stream": func(s *fakeServer) { s.refuse = true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *Config) { c.Servers = []string{"one", "two"} }, func(w *world) {
				w.servers["two"] = newServer(w.t)
				for _, s := range w.servers {
					s.service("a", "1", "10.0.0.1")
				}
				w.server.change(func() { fault(w.server) })
				w.run()
				began := time.Now()
				c, err := w.within(healBound, "a")
				if err != nil || !slices.Equal(hostsOf(c), []string{"10.0.0.1"}) || w.Status().Server != "two" {
					t.Errorf("after %v: %v, %v, from %s", time.Since(began), hostsOf(c), err, w.Status().Server)
				}
			})
		})
	}
}

// waits gives the gaps between the streams that a server saw in a time.
func (w *world) waits(d time.Duration) []time.Duration {
	w.server.log()
	var gaps []time.Duration
	last := time.Time{}
	for end := time.Now().Add(d); time.Now().Before(end); {
		pass(10 * time.Millisecond)
		for _, line := range w.server.log() {
			if line != "stream" {
				continue
			}
			if now := time.Now(); !last.IsZero() {
				gaps = append(gaps, now.Sub(last))
			}
			last = time.Now()
		}
	}
	return gaps
}

// TestBackoff: waits are anything up to a ceiling that doubles from 100 ms to 10 s
// (full jitter). Neither an open stream nor a message that is refused makes them short
// again; the first good message does.
func TestBackoff(t *testing.T) {
	for name, refuse := range map[string]func(s *fakeServer){
		"streams end at once": func(s *fakeServer) { s.refuse = true },
		"every message is bad": func(s *fakeServer) {
			s.resources[mesh.ResourceName{Type: mesh.TypeCluster, Name: "a"}] = badCluster("a")
			s.never[mesh.TypeEndpoint], s.endsAfter = true, 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(w *world) {
				w.server.service("a", "1", "10.0.0.1")
				w.Subscribe("a")
				w.server.change(func() { refuse(w.server) })
				w.run()
				pass(time.Minute) // the ceiling is reached
				gaps := w.waits(20 * time.Minute)
				mean := time.Duration(0)
				for _, g := range gaps {
					mean += g / time.Duration(len(gaps))
				}
				if longest := slices.Max(gaps); longest > 10100*time.Millisecond || longest < 9*time.Second {
					t.Errorf("the longest of %d waits is %v, want up to 10 s", len(gaps), longest)
				}
				if shortest := slices.Min(gaps); shortest > time.Second {
					t.Errorf("the shortest of %d waits is %v: that is no full jitter", len(gaps), shortest)
				}
				if mean < 4*time.Second || mean > 6*time.Second {
					t.Errorf("the mean of %d waits is %v, want 5 s", len(gaps), mean)
				}
				// One good message, and the next wait is short.
				w.server.change(func() {
					w.server.refuse, w.server.endsAfter = false, 0
					delete(w.server.never, mesh.TypeEndpoint)
				})
				w.server.service("a", "2", "10.0.0.2")
				pass(11 * time.Second)
				w.must("a", "10.0.0.2")
				w.server.log()
				w.server.cut()
				pass(backoffBase + 10*time.Millisecond)
				if got := w.server.log(); !slices.Contains(got, "stream") {
					t.Errorf("no stream within %v after a good message", backoffBase)
				}
			})
		})
	}
}

// TestAgeOfEachResource: a cluster is as old as the older of its resources, in
// the metric and in the status; each has its own age there.
func TestAgeOfEachResource(t *testing.T) {
	registry := prometheus.NewRegistry()
	bubble(t, func(c *Config) { c.Registerer = registry }, func(w *world) {
		random := rand.New(rand.NewPCG(1, 1))
		w.server.service("a", "1", "10.0.0.1")
		w.run()
		w.must("a", "10.0.0.1")
		began := time.Now()
		for range 5 {
			pass(time.Duration(random.Int64N(int64(10 * time.Second))))
			w.server.set(mesh.TypeEndpoint, eds("a", "1", "10.0.0.1")) // vouched for again
			synctest.Wait()
		}
		changed := time.Now()
		pass(3 * time.Second)
		status := w.Status().Clusters[0]
		if len(status.Resources) != 2 || !status.Resources[1].ConfirmedAt.Equal(changed) || !status.Resources[0].ConfirmedAt.Equal(status.ConfirmedAt) ||
			status.Resources[0].ConfirmedAt.After(began) || status.Resources[0].Type != mesh.TypeCluster {
			t.Errorf("status %+v", status)
		}
		age := metric(t, registry, "freshmesh_discovery_age_seconds")
		if want := time.Since(status.ConfirmedAt).Seconds(); age != want {
			t.Errorf("age %v s, want %v", age, want)
		}
	})
}
