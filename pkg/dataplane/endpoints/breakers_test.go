package endpoints_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// limits gives a cluster with these limits at default priority.
func limits(change func(*discovery.Limits), es ...mesh.Endpoint) *discovery.Cluster {
	both := [discovery.Priorities]discovery.Limits{discovery.DefaultLimits, discovery.DefaultLimits}
	change(&both[discovery.DefaultPriority])
	return &discovery.Cluster{Name: "c", Endpoints: es, Breakers: &both}
}

func breaker(s *endpoints.Set, b endpoints.Breaker) endpoints.BreakerStatus {
	return s.Status()[0].Breakers[b]
}

func TestBreakerOnRequests(t *testing.T) {
	in(t, func(w *world) {
		_ = w.set.Apply(limits(func(l *discovery.Limits) { l.Requests = 2 }, listed(a)))
		c := w.set.Cluster("c")
		var held []*endpoints.Lease
		for range 2 {
			l, err := c.Acquire(w.t.Context(), endpoints.Request{})
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, l)
		}
		began := time.Now()
		if _, err := c.Acquire(w.t.Context(), endpoints.Request{}); upstream.ReasonOf(err) != upstream.BreakerRequests || time.Since(began) > 0 ||
			!strings.Contains(err.Error(), " is at its limit of 2") {
			t.Errorf("third: %v after %s", err, time.Since(began))
		}
		if st := breaker(w.set, endpoints.Requests); !st.Open() || st.Remaining() != 0 || st.Shed != 1 {
			t.Errorf("%+v", st)
		}
		// The high priority has limits of its own, and an opaque connection is no request.
		for _, r := range []endpoints.Request{{Priority: discovery.HighPriority}, {Opaque: true}} {
			l, err := c.Acquire(w.t.Context(), r)
			if err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
			l.End(true)
		}
		held[0].End(true)
		held[1].DialFailed(upstream.EndpointRemoved)
		if got, err := w.request(c); err != nil || got != a {
			t.Errorf("then %s %v", got, err)
		}
		if st := breaker(w.set, endpoints.Requests); st.Open() || st.Active != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// A limit of 0 is taken at its word: it closes a service.
func TestNoRequests(t *testing.T) {
	in(t, func(w *world) {
		_ = w.set.Apply(limits(func(l *discovery.Limits) { l.Requests = 0 }, listed(a)))
		if _, err := w.request(w.set.Cluster("c")); upstream.ReasonOf(err) != upstream.BreakerRequests {
			t.Error(err)
		}
	})
}

// The queue for an endpoint is bounded in number, in time, and by each request's own deadline: three reasons.
func TestQueueIsBounded(t *testing.T) {
	in(t, func(w *world) {
		_ = w.set.Apply(limits(func(l *discovery.Limits) { l.Pending = 2 }))
		c := w.set.Cluster("c")
		type outcome struct {
			reason upstream.Reason
			took   time.Duration
		}
		outcomes := make(chan outcome, 3)
		ask := func(ctx context.Context) {
			began := time.Now()
			_, err := c.Acquire(ctx, endpoints.Request{})
			outcomes <- outcome{upstream.ReasonOf(err), time.Since(began)}
		}
		hurried, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { ask(w.t.Context()) })
		wg.Go(func() { ask(hurried) })
		pass(time.Millisecond)
		ask(w.t.Context())
		if got := <-outcomes; got != (outcome{upstream.BreakerPending, 0}) {
			t.Errorf("third: %+v", got)
		}
		wg.Wait()
		if got := <-outcomes; got != (outcome{upstream.DeadlineInQueue, time.Second}) {
			t.Errorf("hurried: %+v", got)
		}
		if got := <-outcomes; got.reason != upstream.NoEndpoints || got.took.Round(time.Millisecond) != 3*time.Second-0 {
			t.Errorf("patient: %+v", got)
		}
		if st := breaker(w.set, endpoints.Pending); st.Active != 0 || st.Shed != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestRetryBreaker(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limit  discovery.Limits
		active int
		want   int
	}{
		{"at least three", discovery.DefaultLimits, 0, 3},
		{"a fifth of what is active", discovery.DefaultLimits, 50, 10},
		{"a number that was given", discovery.Limits{Requests: 1024, Retries: 2}, 50, 2},
		{"none", discovery.Limits{Requests: 1024}, 50, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in(t, func(w *world) {
				_ = w.set.Apply(limits(func(l *discovery.Limits) { *l = tt.limit }, listed(a)))
				c := w.set.Cluster("c")
				var held []*endpoints.Lease
				for range tt.active {
					l, err := c.Acquire(w.t.Context(), endpoints.Request{})
					if err != nil {
						t.Fatal(err)
					}
					held = append(held, l)
				}
				var releases []func()
				for {
					release, ok := c.BeginRetry(discovery.DefaultPriority)
					if !ok {
						break
					}
					releases = append(releases, release)
				}
				if len(releases) != tt.want {
					t.Errorf("%d retries at a time, want %d", len(releases), tt.want)
				}
				for _, release := range releases {
					release()
				}
				for _, l := range held {
					l.End(true)
				}
				if st := breaker(w.set, endpoints.Retries); st.Active != 0 || st.Shed != 1 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// The breaker on connections, over real sockets: what is over is shed at once,
// and idle connections of one endpoint make room for another.
func TestBreakerOnConnections(t *testing.T) {
	first, second := acceptor(t), acceptor(t)
	set := endpoints.New(endpoints.Config{Reporter: &world{t: t}})
	defer set.Close()
	_ = set.Apply(limits(func(l *discovery.Limits) { l.Connections = 2 }, listed(first), listed(second)))
	c := set.Cluster("c")
	dial := func() (*upstream.Raw, *endpoints.Lease, error) {
		l, err := c.Acquire(t.Context(), endpoints.Request{Opaque: true})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := l.Upstream.Dial(t.Context())
		return raw, l, err
	}
	var open []*upstream.Raw
	for range 2 {
		raw, l, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer l.End(true)
		open = append(open, raw)
	}
	_, l, err := dial()
	if upstream.ReasonOf(err) != upstream.BreakerConnections || !strings.HasSuffix(err.Error(), " is at its limit of 2") || !strings.Contains(err.Error(), ": cluster ") {
		t.Fatalf("third: %v", err)
	}
	l.DialFailed(upstream.ReasonOf(err))
	total := 0
	for _, e := range set.Status()[0].Endpoints {
		total += int(e.OpenConnections)
		if e.Ejected {
			t.Errorf("a breaker ejected %v", e.Address)
		}
	}
	if st := breaker(set, endpoints.Connections); !st.Open() || st.Shed != 1 || total != 2 {
		t.Errorf("%+v, %d open", st, total)
	}
	_ = open[0].Close()
	_ = open[0].Close() // twice is once
	raw, l, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	l.End(true)
	_ = raw.Close()
	_ = open[1].Close()
	if st := breaker(set, endpoints.Connections); st.Active != 0 {
		t.Errorf("%+v", st)
	}
}

// What one endpoint keeps idle makes room for a connection to another.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	set := endpoints.New(endpoints.Config{Reporter: &world{t: t}})
	defer set.Close()
	dc := limits(func(l *discovery.Limits) { l.Connections = 1 }, listed(acceptor(t)), listed(acceptor(t)))
	dc.Policy = discovery.RoundRobin
	_ = set.Apply(dc)
	seen := map[mesh.EndpointKey]bool{}
	for range 6 {
		l, err := set.Cluster("c").Acquire(t.Context(), endpoints.Request{})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := l.HTTP1.Acquire(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", l.Key.Address, err)
		}
		seen[l.Key] = true
		conn.Release()
		l.End(true)
	}
	if st := breaker(set, endpoints.Connections); len(seen) != 2 || st.Active > 1 || st.Shed > 0 {
		t.Errorf("%d endpoints, %+v", len(seen), st)
	}
}

// An endpoint that drains keeps no idle connections.
func TestDrainingClosesWhatIsIdle(t *testing.T) {
	set := endpoints.New(endpoints.Config{Reporter: &world{t: t}})
	defer set.Close()
	addr := acceptor(t)
	_ = set.Apply(limits(func(*discovery.Limits) {}, listed(addr)))
	l, err := set.Cluster("c").Acquire(t.Context(), endpoints.Request{})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.HTTP1.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Release()
	l.End(true)
	if st := breaker(set, endpoints.Connections); st.Active != 1 {
		t.Errorf("%+v", st)
	}
	_ = set.Apply(limits(func(*discovery.Limits) {}, listed(addr, func(e *mesh.Endpoint) { e.Health = mesh.Draining })))
	if st := breaker(set, endpoints.Connections); st.Active != 0 {
		t.Errorf("%+v", st)
	}
}

// acceptor is a listener that accepts and holds.
func acceptor(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var held []net.Conn
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				break
			}
			if err == nil {
				held = append(held, conn)
			}
		}
		for _, conn := range held {
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

func TestClosingWhatIsEstablished(t *testing.T) {
	in(t, func(w *world) {
		dc := limits(func(*discovery.Limits) {}, listed(a), listed(b))
		dc.CloseOnEjection, dc.CloseOnOverload, dc.Policy = true, true, discovery.RoundRobin
		_ = w.set.Apply(dc)
		c := w.set.Cluster("c")
		var mu sync.Mutex
		var closed []int
		why := map[int]upstream.Reason{}
		leases := make([]*endpoints.Lease, 6)
		for i := range leases {
			l, err := c.Acquire(w.t.Context(), endpoints.Request{Cancel: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				closed = append(closed, i)
				why[i] = upstream.ReasonOf(err)
			}})
			if err != nil {
				t.Fatal(err)
			}
			leases[i] = l
		}
		// The limit falls to 4: the newest two go.
		lower := *dc
		lower.Breakers = limits(func(l *discovery.Limits) { l.Requests = 4 }).Breakers
		_ = w.set.Apply(&lower)
		if len(closed) != 2 || why[4] != upstream.BreakerRequests || why[5] != upstream.BreakerRequests {
			t.Fatalf("closed %v, %v", closed, why)
		}
		for _, i := range closed {
			leases[i].End(true)
		}
		// a is found dead: what is on it goes, the rest stays.
		w.kill(a, true)
		pass(time.Second)
		l, err := c.Acquire(w.t.Context(), endpoints.Request{Opaque: true})
		for err == nil && l.Key.Address.String() != a {
			l.End(true)
			l, err = c.Acquire(w.t.Context(), endpoints.Request{Opaque: true})
		}
		if err != nil {
			t.Fatal(err)
		}
		l.DialFailed(upstream.ConnectRefused)
		for i := range 4 {
			want := upstream.Reason("")
			if leases[i].Key.Address.String() == a {
				want = upstream.EndpointEjected
			}
			if why[i] != want {
				t.Errorf("request %d on %s: %q, want %q", i, leases[i].Key.Address, why[i], want)
			}
			leases[i].End(true)
		}
	})
}
