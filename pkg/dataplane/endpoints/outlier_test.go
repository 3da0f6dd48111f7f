package endpoints_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
)

// outliers is a cluster of n endpoints with outlier detection, changed as said.
func (w *world) outliers(n int, change ...func(*discovery.Cluster)) *endpoints.Cluster {
	o := discovery.DefaultOutlier
	dc := &discovery.Cluster{Name: "c", Outlier: &o, Policy: discovery.RoundRobin}
	for i := range n {
		dc.Endpoints = append(dc.Endpoints, listed(fmt.Sprintf("10.0.0.%d:80", i+1)))
	}
	for _, f := range change {
		f(dc)
	}
	_ = w.set.Apply(dc)
	return w.set.Cluster("c")
}

// ask leases once and answers with the status that of gives for the endpoint's index from 1; it gives that index.
func (w *world) ask(c *endpoints.Cluster, of func(i int) int) int {
	w.t.Helper()
	l, err := c.Acquire(w.t.Context(), endpoints.Request{})
	if err != nil {
		w.t.Fatal(err)
	}
	i := int(l.Key.Address.Addr().As4()[3])
	l.Connected()
	pass(time.Millisecond)
	l.Response(of(i), http.Header{})
	l.End(true)
	return i
}

func (w *world) state(i int) endpoints.EndpointStatus { return w.set.Status()[0].Endpoints[i-1] }

func statusOf(bad, status int) func(int) int {
	return func(i int) int {
		if i == bad {
			return status
		}
		return 200
	}
}

func TestConsecutive5xxEjectsForLongerEachTime(t *testing.T) {
	in(t, func(w *world) {
		c := w.outliers(3)
		bad := statusOf(1, 500)
		for round := 1; round <= 3; round++ {
			before := time.Now()
			for !w.state(1).Ejected {
				w.ask(c, bad)
				if time.Since(before) > 5*time.Second {
					t.Fatal("not ejected")
				}
			}
			st := w.state(1)
			length := time.Until(st.EjectedUntil).Round(time.Second)
			if least := time.Duration(round) * 30 * time.Second; !st.Doubted || st.Reason != "consecutive_5xx" || length < least-time.Second || length > least+4*time.Second {
				t.Fatalf("round %d: ejected for %s: %+v", round, length, st)
			}
			// Nothing goes there meanwhile; then one request does, alone, and fails.
			for time.Until(st.EjectedUntil) > 100*time.Millisecond {
				if w.ask(c, bad) == 1 {
					t.Fatal("used while ejected")
				}
				pass(50 * time.Millisecond)
			}
			pass(200 * time.Millisecond)
			n := 0
			for range 100 {
				if w.ask(c, bad) == 1 {
					n++
				}
			}
			if n != 1 {
				t.Fatalf("round %d: %d requests on trial, want 1", round, n)
			}
			if round == 3 {
				break
			}
			// The trial counted: ejected again for longer. Let that time pass, and readmit by a good answer.
			pass(time.Until(w.state(1).EjectedUntil) + time.Second)
			for w.state(1).Ejected {
				w.ask(c, statusOf(0, 200))
			}
			// Two intervals of calm take back what the failed trial and the next one add.
			for range 1 {
				pass(11 * time.Second)
				w.ask(c, statusOf(0, 200))
			}
		}
	})
}

// A trial is one request, however many come while it is under way.
func TestHalfOpenIsOneRequest(t *testing.T) {
	in(t, func(w *world) {
		c := w.outliers(2)
		for !w.state(1).Ejected {
			w.ask(c, statusOf(1, 503))
		}
		pass(40 * time.Second)
		leases := map[int][]*endpoints.Lease{}
		for range 50 {
			l, err := c.Acquire(w.t.Context(), endpoints.Request{})
			if err != nil {
				t.Fatal(err)
			}
			i := int(l.Key.Address.Addr().As4()[3])
			leases[i] = append(leases[i], l)
		}
		if len(leases[1]) != 1 || !w.state(1).OnTrial {
			t.Fatalf("%d requests on trial", len(leases[1]))
		}
		// A request that ends without an answer proves nothing; the next one is the trial.
		leases[1][0].End(true)
		if i := w.ask(c, statusOf(0, 0)); i != 1 || w.state(1).Ejected {
			t.Errorf("after a good trial: asked %d, %+v", i, w.state(1))
		}
		for _, l := range leases[2] {
			l.End(true)
		}
	})
}

func TestAtMostATenthIsEjectedButOne(t *testing.T) {
	for _, tt := range []struct{ n, want int }{{1, 1}, {5, 1}, {20, 2}} {
		t.Run(fmt.Sprint(tt.n), func(t *testing.T) {
			in(t, func(w *world) {
				c := w.outliers(tt.n)
				for range tt.n * 20 {
					w.ask(c, func(int) int { return 500 })
				}
				ejected := 0
				for _, e := range w.set.Status()[0].Endpoints {
					if e.Ejected {
						ejected++
					}
				}
				if ejected != tt.want {
					t.Errorf("%d of %d ejected, want %d", ejected, tt.n, tt.want)
				}
			})
		})
	}
}

// Dials that fail may eject all; the trials go on.
func TestConnectFailuresMayEjectAll(t *testing.T) {
	in(t, func(w *world) {
		c := w.outliers(3)
		for i := range 3 {
			w.kill(fmt.Sprintf("10.0.0.%d:80", i+1), true)
		}
		if _, err := w.request(c); err == nil {
			t.Fatal("answered")
		}
		for i := range 3 {
			if st := w.state(i + 1); !st.Ejected || st.Doubted {
				t.Errorf("%+v", st)
			}
		}
	})
}

// A doubted endpoint is used when there is nothing else: bad answers are better than none.
func TestDoubtedIsTheLastResort(t *testing.T) {
	in(t, func(w *world) {
		c := w.outliers(2)
		for !w.state(1).Ejected {
			w.ask(c, statusOf(1, 500))
		}
		w.kill(b, true)
		if got, err := w.request(c); err != nil || got != a {
			t.Errorf("%s %v", got, err)
		}
	})
}

func TestEnforcing(t *testing.T) {
	in(t, func(w *world) {
		c := w.outliers(2, func(dc *discovery.Cluster) { dc.Outlier.EnforceConsecutive5xx = 0 })
		for range 100 {
			w.ask(c, statusOf(1, 500))
		}
		if w.state(1).Ejected {
			t.Error("ejected, though not enforced")
		}
	})
}

// Success rate by simulation: one of ten fails 30%; it goes within two intervals, and nobody else does.
func TestSuccessRateSimulation(t *testing.T) {
	in(t, func(w *world) {
		c := w.outliers(10)
		random := rand.New(rand.NewPCG(1, 2))
		began := time.Now()
		for time.Since(began) < 25*time.Second && !w.state(3).Ejected {
			w.ask(c, func(i int) int {
				if i == 3 && random.Float64() < .3 || random.Float64() < .005 {
					return 500
				}
				return 200
			})
			pass(4 * time.Millisecond)
		}
		for i := 1; i <= 10; i++ {
			if st := w.state(i); st.Ejected != (i == 3) {
				t.Errorf("endpoint %d after %s: %+v", i, time.Since(began), st)
			}
		}
		if st := w.state(3); st.SuccessRate == nil || *st.SuccessRate < 50 || *st.SuccessRate > 85 {
			t.Errorf("success rate %v", st.SuccessRate)
		}
	})
}

// An answer that breaks off in its body is no good answer: in a row they eject,
// for answers of HTTP as for gRPC, and none of it is forgotten for the headers that came first.
func TestBrokenOffAnswersCount(t *testing.T) {
	for _, content := range []string{"text/plain", "application/grpc"} {
		t.Run(content, func(t *testing.T) {
			in(t, func(w *world) {
				c := w.outliers(2)
				for range 20 {
					l, err := c.Acquire(w.t.Context(), endpoints.Request{})
					if err != nil {
						t.Fatal(err)
					}
					l.Connected()
					l.Response(200, http.Header{"Content-Type": {content}})
					if l.Key.Address.String() == a {
						l.BrokenOff()
					}
					l.End(l.Key.Address.String() != a)
				}
				if st := w.state(1); !st.Doubted || st.Reason != "consecutive_5xx" || w.state(2).Ejected {
					t.Errorf("%+v %+v", st, w.state(2))
				}
			})
		})
	}
}

func TestGRPCStatusCounts(t *testing.T) {
	in(t, func(w *world) {
		c := w.outliers(2)
		for range 40 {
			l, err := c.Acquire(w.t.Context(), endpoints.Request{})
			if err != nil {
				t.Fatal(err)
			}
			l.Connected()
			l.Response(200, http.Header{"Content-Type": {"application/grpc"}})
			code := "0"
			if l.Key.Address.String() == a {
				code = "14"
			}
			l.Trailers(http.Header{"Grpc-Status": {code}})
			l.End(true)
		}
		if !w.state(1).Doubted || w.state(2).Ejected {
			t.Errorf("%+v %+v", w.state(1), w.state(2))
		}
	})
}

// Retry-After reaches the balancer.
func TestRetryAfterIsHonoured(t *testing.T) {
	in(t, func(w *world) {
		c := w.put(listed(a), listed(b))
		asked := map[string]int{}
		for range 200 {
			l, err := c.Acquire(w.t.Context(), endpoints.Request{})
			if err != nil {
				t.Fatal(err)
			}
			addr := l.Key.Address.String()
			asked[addr]++
			l.Connected()
			if addr == a {
				l.Response(429, http.Header{"Retry-After": {"20"}})
			} else {
				l.Response(200, http.Header{})
			}
			l.End(true)
			pass(50 * time.Millisecond)
		}
		if asked[a] != 1 {
			t.Errorf("asked %d times within 10 s, though it said to come back after 20", asked[a])
		}
	})
}

func TestDetectionSwitchedOffReadmits(t *testing.T) {
	in(t, func(w *world) {
		c := w.outliers(2)
		for !w.state(1).Ejected {
			w.ask(c, statusOf(1, 500))
		}
		w.put(listed(a), listed(b))
		if w.state(1).Ejected {
			t.Error("still ejected")
		}
	})
}

// Run with -race: the hot path, ejections and updates together.
func TestCrowd(t *testing.T) {
	in(t, func(w *world) {
		c := w.outliers(5)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 200 {
					l, err := c.Acquire(w.t.Context(), endpoints.Request{Hash: uint64(i)})
					if err != nil {
						continue
					}
					l.Connected()
					pass(time.Millisecond)
					l.Response(200+300*(i*g%2), http.Header{})
					l.End(true)
				}
			})
		}
		for i := range 50 {
			pass(3 * time.Millisecond)
			w.outliers(3 + i%4)
			_ = w.set.Status()
		}
		wg.Wait()
		for _, e := range w.set.Status()[0].Endpoints {
			if e.InFlight != 0 {
				t.Errorf("%+v", e)
			}
		}
		for _, s := range w.set.Status()[0].Breakers {
			if s.Active != 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}
