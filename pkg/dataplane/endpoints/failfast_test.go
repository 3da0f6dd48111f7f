package endpoints_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Those that waited and those that did not are told different things, and both since when and why.
func TestFailFastSaysSo(t *testing.T) {
	in(t, func(w *world) {
		c := w.put(listed(a), listed(b))
		w.kill(a, true)
		w.kill(b, true)
		_, err := w.request(c)
		if upstream.ReasonOf(err) != upstream.AllEjected {
			t.Errorf("waited: %v", err)
		}
		pass(500 * time.Millisecond)
		began := time.Now()
		_, err = w.request(c)
		if upstream.ReasonOf(err) != upstream.FailFast || time.Since(began) > 0 {
			t.Errorf("at once: %v after %s", err, time.Since(began))
		}
		for _, part := range []string{"10.0.0.", "all 2 endpoints of", "ejected since 00:00:00", "connect_refused"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q says nothing of %q", err, part)
			}
		}
		if st := w.set.Status()[0]; st.Phase != endpoints.FailingFast || st.Without.IsZero() {
			t.Errorf("%+v", st)
		}
	})
}

// A request whose time ends while it waits is told so, whatever else has happened when its goroutine comes to run.
func TestEndOfTimeInQueueComesFirst(t *testing.T) {
	for range 20 {
		in(t, func(w *world) {
			c := w.put()
			ctx, cancel := context.WithTimeout(w.t.Context(), endpoints.DefaultFailFast)
			defer cancel()
			if _, err := c.Acquire(ctx, endpoints.Request{}); upstream.ReasonOf(err) != upstream.DeadlineInQueue {
				t.Errorf("at the end of both: %v", err)
			}
		})
	}
}

// While requests fail fast the trials go on by themselves, so that no request
// pays for finding out that an endpoint is back.
func TestRecoveryCostsNoRequest(t *testing.T) {
	in(t, func(w *world) {
		w.dialTime = 200 * time.Millisecond
		c := w.put(listed(a))
		w.kill(a, true)
		_, _ = w.request(c)
		pass(5 * time.Second)
		w.kill(a, false)
		// A back-off of at most a second, and a dial; or the one that is under way comes to a good end.
		pass(1300 * time.Millisecond)
		if w.set.Status()[0].Phase != endpoints.Serving {
			t.Fatal("not recovered by itself")
		}
		began := time.Now()
		if got, err := w.request(c); got != a || time.Since(began) > 200*time.Millisecond {
			t.Errorf("%s %v after %s", got, err, time.Since(began))
		}
	})
}

// Nobody asks: the trials end.
func TestUnusedClusterIsLeftAlone(t *testing.T) {
	in(t, func(w *world) {
		c := w.put(listed(a))
		w.kill(a, true)
		_, _ = w.request(c)
		pass(15 * time.Second)
		before := w.probesOf(a)
		pass(time.Hour)
		if n := w.probesOf(a) - before; n > 0 {
			t.Errorf("%d trials in an hour without a request", n)
		}
	})
}

// Waiting requests all get the endpoint that comes back.
func TestWaitingRequestsAreServed(t *testing.T) {
	in(t, func(w *world) {
		c := w.put(listed(a))
		w.kill(a, true)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if got, err := w.request(c); got != a || err != nil {
					t.Errorf("%s %v", got, err)
				}
			})
		}
		pass(1500 * time.Millisecond)
		w.kill(a, false)
		wg.Wait()
	})
}

func TestFailFastIsASetting(t *testing.T) {
	in(t, func(w *world) {
		set := endpoints.New(endpoints.Config{Reporter: w, FailFast: time.Second})
		defer set.Close()
		_ = set.Apply(&discovery.Cluster{Name: "c"})
		began := time.Now()
		_, err := set.Cluster("c").Acquire(w.t.Context(), endpoints.Request{})
		if took := time.Since(began); upstream.ReasonOf(err) != upstream.NoEndpoints || took != time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// A thousand dead endpoints are not dialled all at once.
func TestTrialsAreBounded(t *testing.T) {
	in(t, func(w *world) {
		w.dialTime = 2 * time.Second
		var es []mesh.Endpoint
		for i := range 200 {
			addr := fmt.Sprintf("10.0.1.%d:80", i)
			es = append(es, listed(addr))
			w.kill(addr, true)
		}
		c := w.put(es...)
		for range 200 {
			l, err := c.Acquire(w.t.Context(), endpoints.Request{})
			if err != nil {
				break
			}
			l.DialFailed(upstream.ConnectTimeout)
		}
		_, _ = w.request(c)
		if w.most < 2 || w.most > 16 {
			t.Errorf("%d trials at once", w.most)
		}
	})
}

// An update that changes one endpoint's weight keeps all else, ejections too.
func TestUpdateKeepsState(t *testing.T) {
	in(t, func(w *world) {
		c := w.outliers(3)
		for !w.state(1).Ejected {
			w.ask(c, statusOf(1, 500))
		}
		w.outliers(3, func(dc *discovery.Cluster) { dc.Endpoints[1].Weight = 9 })
		if st := w.state(1); !st.Doubted || w.state(2).Weight != 9 || len(w.made) != 3 {
			t.Errorf("%+v, weight %d, %d pools", st, w.state(2).Weight, len(w.made))
		}
		w.outliers(3, func(dc *discovery.Cluster) { dc.HTTP2 = true })
		if !w.state(1).Doubted || len(w.made) != 6 || !w.made[0].retired {
			t.Error("a change of protocol loses the ejection, or keeps the pools")
		}
		pass(time.Until(w.state(1).EjectedUntil) + time.Second)
		for i := 0; w.state(1).Ejected && i < 10; i++ {
			w.ask(c, statusOf(0, 0))
		}
		if w.state(1).Ejected {
			t.Error("never readmitted")
		}
	})
}

// A request that waits when its service is removed is told so, and does not wait on.
func TestRemovedUnderARequest(t *testing.T) {
	in(t, func(w *world) {
		c := w.put()
		time.AfterFunc(500*time.Millisecond, func() { w.set.Remove("c") })
		for _, waited := range []time.Duration{500 * time.Millisecond, 0} {
			began := time.Now()
			_, err := w.request(c)
			if upstream.ReasonOf(err) != upstream.NoSuchService || time.Since(began) != waited {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		}
	})
}
