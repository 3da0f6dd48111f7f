package endpoints_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// world is a set whose upstreams dial nothing.
type world struct {
	t   *testing.T
	set *endpoints.Set

	mu         sync.Mutex // guards all below
	dead       map[string]bool
	made       []*fake
	probes     map[string]int
	probing    int
	most       int
	distrusted int
	ejections  int
	dialTime   time.Duration
	logged     []string
}

// Write takes a line of the log.
func (w *world) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logged = append(w.logged, string(line))
	return len(line), nil
}

type fake struct {
	w       *world
	cfg     upstream.Config
	retired bool
}

func (f *fake) Dial(context.Context) (*upstream.Raw, error)     { return nil, errors.New("unused") }
func (f *fake) Retire(time.Duration)                            { f.retired = true }
func (f *fake) Close()                                          { f.retired = true }
func (w *world) Count(string, mesh.EndpointKey, discovery.Load) {}
func (w *world) Distrust(string)                                { w.mu.Lock(); w.distrusted++; w.mu.Unlock() }

func (w *world) asked() int { w.mu.Lock(); defer w.mu.Unlock(); return w.distrusted }

func (w *world) kill(addr string, dead bool) { w.mu.Lock(); w.dead[addr] = dead; w.mu.Unlock() }

func (w *world) probesOf(addr string) int { w.mu.Lock(); defer w.mu.Unlock(); return w.probes[addr] }

func (f *fake) Probe(ctx context.Context) error {
	w, addr := f.w, f.cfg.Address.String()
	w.mu.Lock()
	w.probes[addr]++
	w.probing++
	w.most = max(w.most, w.probing)
	took := w.dialTime
	w.mu.Unlock()
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probing--
	if ctx.Err() != nil {
		return &upstream.Error{Reason: upstream.ClientGone}
	}
	if w.dead[addr] {
		return &upstream.Error{Reason: upstream.ConnectRefused}
	}
	return nil
}

// in runs f in a bubble with a world of its own.
func in(t *testing.T, f func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dead: map[string]bool{}, probes: map[string]int{}, dialTime: time.Millisecond}
		w.set = endpoints.New(endpoints.Config{
			Reporter: w, Logger: hclog.New(&hclog.LoggerOptions{Output: w, Level: hclog.Info}), Ejected: func(upstream.Reason) { w.mu.Lock(); w.ejections++; w.mu.Unlock() },
			NewUpstream: func(c upstream.Config) upstream.Upstream {
				u := &fake{w: w, cfg: c}
				w.made = append(w.made, u)
				return u
			},
		})
		defer w.set.Close()
		f(w)
	})
}

const (
	a = "10.0.0.1:80"
	b = "10.0.0.2:80"
)

func listed(addr string, change ...func(*mesh.Endpoint)) mesh.Endpoint {
	e := mesh.Endpoint{EndpointKey: mesh.EndpointKey{Address: netip.MustParseAddrPort(addr)}, Weight: 1}
	for _, f := range change {
		f(&e)
	}
	return e
}

func (w *world) put(es ...mesh.Endpoint) *endpoints.Cluster {
	_ = w.set.Apply(&discovery.Cluster{Name: "c", Endpoints: es})
	return w.set.Cluster("c")
}

// request leases and dials as the proxy does; it gives the endpoint that answered.
func (w *world) request(c *endpoints.Cluster) (string, error) {
	var tried []mesh.EndpointKey
	for {
		l, err := c.Acquire(w.t.Context(), endpoints.Request{Tried: tried})
		if err != nil {
			return "", err
		}
		pass(w.dialTime)
		w.mu.Lock()
		dead := w.dead[l.Key.Address.String()]
		w.mu.Unlock()
		if !dead {
			l.Connected()
			l.Answered(true)
			l.End(true)
			return l.Key.Address.String(), nil
		}
		l.DialFailed(upstream.ConnectRefused)
		tried = append(tried, l.Key)
	}
}

// pass lets simulated time go by.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

func TestDeadEndpointIsLeftAtOnceAndTriedAlone(t *testing.T) {
	in(t, func(w *world) {
		c := w.put(listed(a), listed(b))
		w.kill(a, true)
		for range 600 {
			if got, err := w.request(c); err != nil || got != b {
				t.Fatalf("%s %v", got, err)
			}
			pass(100 * time.Millisecond)
		}
		// 100, 200, … ms, less up to a quarter: 8 or 9 trials in the first half minute, then one in 22 to 30 s.
		if n := w.probesOf(a); n < 8 || n > 13 {
			t.Errorf("%d trials in a minute", n)
		}
		if w.most != 1 || w.ejections != 1 {
			t.Errorf("%d trials at once, %d ejections", w.most, w.ejections)
		}
		if w.asked() == 0 {
			t.Error("never distrusted, though many dials failed in a row")
		}
		w.kill(a, false)
		back := false
		for range 400 {
			got, err := w.request(c)
			if err != nil {
				t.Fatal(err)
			}
			back = back || got == a
			pass(100 * time.Millisecond)
		}
		if !back {
			t.Error("not used again 40 s after it came back")
		}
		// The log tells of changes of state, and not of each trial.
		if n := len(w.logged); n != 2 || !strings.Contains(w.logged[0], "[WARN]") || !strings.Contains(w.logged[1], "[INFO]") {
			t.Errorf("%d lines in the log, want one for the ejection and one for the return:\n%s", n, strings.Join(w.logged, ""))
		}
	})
}

func TestBurstIsOneFailure(t *testing.T) {
	in(t, func(w *world) {
		c := w.put(listed(a), listed(b))
		var leases []*endpoints.Lease
		for range 100 {
			l, err := c.Acquire(w.t.Context(), endpoints.Request{})
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, l)
		}
		failed := uint64(0)
		for _, l := range leases {
			pass(time.Millisecond)
			if l.Key.Address.String() == a {
				failed++
				l.DialFailed(upstream.ConnectRefused)
			} else {
				l.End(true)
			}
		}
		st := w.set.Status()[0].Endpoints[0]
		if st.ConnectFailures != 1 || w.asked() != 0 {
			t.Errorf("%d failures in a row, distrusted %d times", st.ConnectFailures, w.asked())
		}
		if failed < 10 || st.Total.ConnectFailed != failed || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestFailFast(t *testing.T) {
	in(t, func(w *world) {
		c := w.put(listed(a))
		w.kill(a, true)
		began := time.Now()
		_, err := w.request(c)
		if r := upstream.ReasonOf(err); r != upstream.AllEjected {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 3100*time.Millisecond {
			t.Errorf("waited %s, want 3 s", took)
		}
		if w.asked() == 0 {
			t.Error("never distrusted")
		}
		began = time.Now()
		if _, err := w.request(c); err == nil || time.Since(began) > 2*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		// A minute later a trial is due: the request that begins it gets its result.
		pass(time.Minute)
		w.kill(a, false)
		if got, err := w.request(c); got != a {
			t.Errorf("%s %v", got, err)
		}
	})
}

// With everything ejected a crowd of requests makes one trial, not a crowd of trials.
func TestHalfOpenIsOneTrial(t *testing.T) {
	in(t, func(w *world) {
		c := w.put(listed(a))
		w.kill(a, true)
		_, _ = w.request(c)
		pass(time.Minute)
		w.mu.Lock()
		w.dialTime = 500 * time.Millisecond
		w.mu.Unlock()
		before := w.probesOf(a)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { _, _ = c.Acquire(w.t.Context(), endpoints.Request{}) })
		}
		wg.Wait()
		if n := w.probesOf(a) - before; n != 1 {
			t.Errorf("%d trials", n)
		}
	})
}

func TestWaitsForDiscovery(t *testing.T) {
	in(t, func(w *world) {
		c := w.put()
		go func() {
			pass(2 * time.Second)
			w.put(listed(b))
		}()
		if got, err := w.request(c); got != b {
			t.Errorf("%s %v", got, err)
		}
		w.put()
		pass(4 * time.Second)
		if _, err := w.request(c); upstream.ReasonOf(err) != upstream.NoEndpoints {
			t.Errorf("%v", err)
		}
		if w.asked() == 0 {
			t.Error("an empty cluster was not doubted")
		}
	})
}

func TestOnlyWhatChangedIsRebuilt(t *testing.T) {
	in(t, func(w *world) {
		c := w.put(listed(a), listed(b))
		w.kill(a, true)
		for range 20 {
			_, _ = w.request(c)
		}
		w.put(listed(a), listed(b, func(e *mesh.Endpoint) { e.Weight = 5 }), listed("10.0.0.3:80"))
		if len(w.made) != 3 || w.made[0].retired || w.made[1].retired {
			t.Errorf("%d upstreams, retired %v %v", len(w.made), w.made[0].retired, w.made[1].retired)
		}
		st := w.set.Status()[0].Endpoints
		if !st[0].Ejected || st[1].Total.Issued != 20 || st[1].Weight != 5 {
			t.Errorf("state did not survive: %+v", st)
		}
		w.put(listed(a, func(e *mesh.Endpoint) { e.Identity = "spiffe://x/ns/d/sa/a" }))
		if len(w.made) != 4 || !w.made[0].retired || !w.made[1].retired || w.made[3].retired {
			t.Error("a changed identity is another endpoint, and the old one retires")
		}
		if w.set.Status()[0].Endpoints[0].Ejected {
			t.Error("the new identity inherited the ejection")
		}
		w.set.Remove("c")
		if !w.made[3].retired || w.set.Cluster("c") != nil {
			t.Error("removal did not retire")
		}
	})
}

func TestDrainingGetsNothingNew(t *testing.T) {
	in(t, func(w *world) {
		c := w.put(listed(a), listed(b))
		w.put(listed(a, func(e *mesh.Endpoint) { e.Health = mesh.Draining }), listed(b))
		for range 50 {
			if got, err := w.request(c); got != b {
				t.Fatalf("%s %v", got, err)
			}
		}
		if w.made[0].retired {
			t.Error("draining must keep what is in flight")
		}
	})
}

// A client in more of a hurry than the connect timeout cannot hide a dead endpoint.
func TestImpatientClientsFindOut(t *testing.T) {
	in(t, func(w *world) {
		c := w.put(listed(a), listed(b))
		w.kill(a, true)
		for range 50 {
			l, err := c.Acquire(w.t.Context(), endpoints.Request{})
			if err != nil {
				t.Fatal(err)
			}
			if l.Key.Address.String() == b {
				l.End(true)
				continue
			}
			pass(200 * time.Millisecond)
			l.DialFailed(upstream.Deadline)
			break
		}
		pass(time.Second)
		if !w.set.Status()[0].Endpoints[0].Ejected {
			t.Error("not ejected")
		}
	})
}

func TestContextEnds(t *testing.T) {
	in(t, func(w *world) {
		c := w.put()
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		if _, err := c.Acquire(ctx, endpoints.Request{}); upstream.ReasonOf(err) != upstream.DeadlineInQueue {
			t.Errorf("%v", err)
		}
	})
}

// With nothing else to use, a long outage must not outlast itself by its back-off.
func TestLastResortIsTriedEverySecond(t *testing.T) {
	in(t, func(w *world) {
		c := w.put(listed(a), listed(b))
		w.kill(a, true)
		w.kill(b, true)
		for range 600 {
			_, _ = w.request(c)
			pass(100 * time.Millisecond)
		}
		if n := w.probesOf(a); n < 50 || n > 100 {
			t.Errorf("%d trials in a minute", n)
		}
		w.kill(b, false)
		began := time.Now()
		for time.Since(began) < 1500*time.Millisecond {
			if got, err := w.request(c); err == nil && got == b {
				return
			}
			pass(50 * time.Millisecond)
		}
		t.Errorf("not used again %s after it came back", time.Since(began))
	})
}
