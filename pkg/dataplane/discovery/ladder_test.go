package discovery

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// healBound is what the design promises for any fault of the path.
const healBound = 20 * time.Second

var assignmentOfA = mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "a"}

// lose makes the present streams of a server stuck for a's endpoints.
func lose(s *fakeServer) {
	s.change(func() {
		for _, st := range s.streams {
			st.stuck[assignmentOfA] = true
		}
	})
}

// found drops what made a push get lost, and leaves the rest as it is.
func found(s *fakeServer) {
	s.change(func() {
		for _, st := range s.streams {
			clear(st.stuck)
		}
	})
}

// TestLadder: control planes, and networks, of every kind that leaves a stream
// open and brings nothing. Each ladder ends on the rung that helps, within the
// bound; what was in force stays until then. distrust is a dial that fails: where
// other answers come there is no other sign of what is missing.
func TestLadder(t *testing.T) {
	for _, test := range []struct {
		name     string
		distrust bool
		// two is a second server, in order.
		two   bool
		fault func(s *fakeServer)
		// after happens once the change was sent in vain.
		after func(s *fakeServer)
		// rungs were climbed, in order of first use; server is where it ends.
		rungs  string
		server string
	}{
		{
			name: "a push was lost", distrust: true, fault: lose, after: found,
			rungs: "", server: "one",
		},
		{
			name: "a push was lost, and a re-subscribe is ignored", distrust: true,
			fault: func(s *fakeServer) { s.change(func() { s.noResend = true }); lose(s) }, after: found,
			rungs: rungAnew, server: "one",
		},
		{
			name: "the stream does not bring one name any more", distrust: true, fault: lose,
			rungs: rungAnew + " " + rungReconnect, server: "one",
		},
		{
			name: "others are answered, this type never", distrust: true, two: true,
			fault: func(s *fakeServer) { s.change(func() { s.never[mesh.TypeEndpoint] = true }) },
			rungs: rungResubscribe + " " + rungAnew + " " + rungReconnect + " " + rungNextServer, server: "two",
		},
		{
			name: "the stream is silent while pings pass",
			fault: func(s *fakeServer) {
				s.change(func() {
					for _, st := range s.streams {
						st.allStuck = true
					}
				})
			},
			rungs: rungResubscribe + " " + rungAnew + " " + rungReconnect, server: "one",
		},
		{
			name: "the server takes connections and is silent", two: true,
			fault: func(s *fakeServer) { s.change(func() { s.deaf = true }) },
			rungs: rungResubscribe + " " + rungAnew + " " + rungReconnect + " " + rungNextServer, server: "two",
		},
		{
			name:  "the connection hangs, a new one does not", // pings find out before the third rung
			fault: (*fakeServer).hang,
			rungs: rungResubscribe + " " + rungAnew, server: "one",
		},
		{
			name: "the server hangs, new connections too", two: true,
			fault: func(s *fakeServer) { s.hang(); s.change(func() { s.unreachable = true }) },
			rungs: rungResubscribe + " " + rungAnew, server: "two",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			bubble(t, func(c *Config) {
				c.Registerer = registry
				if test.two {
					c.Servers = []string{"one", "two"}
				}
			}, func(w *world) {
				w.servers["two"] = newServer(w.t)
				for _, s := range w.servers {
					s.service("a", "1", "10.0.0.1")
					s.service("b", "1", "10.0.0.9")
				}
				w.run()
				w.must("a", "10.0.0.1")
				w.must("b", "10.0.0.9")
				pass(5 * time.Second)
				w.server.probe() // the worst moment: a message has just come
				synctest.Wait()
				w.server.log()

				test.fault(w.server)
				began := time.Now()
				for _, s := range w.servers {
					s.service("a", "2", "10.0.0.2")
				}
				synctest.Wait()
				if test.after != nil {
					test.after(w.server)
				}
				if test.distrust {
					w.Distrust("a")
				}
				w.heals(began, "a", "10.0.0.2")
				if got := w.Status().Server; got != test.server {
					t.Errorf("ends with %s, want %s", got, test.server)
				}
				if got := climbed(t, registry); got != test.rungs {
					t.Errorf("climbed %q, want %q", got, test.rungs)
				}
				for _, line := range append(w.server.log(), w.servers["two"].log()...) {
					if strings.Contains(line, "node") && strings.Contains(line, "=") && strings.Contains(test.rungs, rungReconnect) {
						t.Errorf("the new connection offers versions: %q", line)
					}
				}
			})
		})
	}
}

// A control plane that takes longer than a rung to begin with a stream, as it is
// busy or far away, is waited for: to give its streams up ever again would keep
// it from ever answering.
func TestSlowControlPlane(t *testing.T) {
	for _, late := range []time.Duration{3 * time.Second, 6 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			bubble(t, nil, func(w *world) {
				w.server.service("a", "1", "10.0.0.1")
				w.run()
				w.must("a", "10.0.0.1")
				w.server.change(func() {
					w.server.late = late
					w.server.streams[0].allStuck = true
				})
				w.server.service("a", "2", "10.0.0.2")
				w.Distrust("a")
				w.heals(time.Now(), "a", "10.0.0.2")
			})
		})
	}
}

// heals waits until the hosts are in force; something is all the time.
func (w *world) heals(began time.Time, name string, hosts ...string) {
	w.t.Helper()
	for !slices.Equal(hostsOf(w.applied.get(name)), hosts) {
		if time.Since(began) > 2*healBound {
			w.t.Fatalf("%v are not in force after %v; watchdog: %+v", hosts, time.Since(began), w.Status())
		}
		if w.applied.get(name) == nil {
			w.t.Fatal("out of force")
		}
		pass(50 * time.Millisecond)
	}
	if took := time.Since(began); took > healBound {
		w.t.Errorf("healed after %v, the bound is %v", took, healBound)
	} else {
		w.t.Logf("healed after %v", took)
	}
}

// climbed gives the rungs that were climbed, from the bottom.
func climbed(t *testing.T, g prometheus.Gatherer) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, rung := range []string{rungResubscribe, rungAnew, rungReconnect, rungNextServer} {
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "freshmesh_discovery_watchdog_total" && m.GetLabel()[0].GetValue() == rung && m.GetCounter().GetValue() > 0 {
					list = append(list, rung)
				}
			}
		}
	}
	return strings.Join(list, " ")
}
