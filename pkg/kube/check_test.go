package kube

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/freshmesh/freshmesh/internal/apiproxy"
	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func (s *Source) relisted(reason relistReason) int {
	return int(testutil.ToFloat64(s.feeds[mesh.KindService].relists.WithLabelValues(string(reason))))
}

func feedOf(st mesh.SourceStatus, name string) mesh.Feed {
	i := slices.IndexFunc(st.Feeds, func(f mesh.Feed) bool { return f.Name == name })
	return st.Feeds[i]
}

// behindProxy is a running source with a service, its slice and a node, and a proxy before its server.
func behindProxy(t *testing.T) (*kubetest.Server, *apiproxy.Proxy, *rig) {
	t.Helper()
	a := kubetest.NewServer(t)
	a.Put(kubetest.Service("a", 80), kubetest.Slice("a-1", "a", "10.0.0.1"), kubetest.Node("n"))
	p := apiproxy.Start(t, "http://"+a.Address, nil)
	r := run(t, newSource(t, "http://"+p.Address))
	r.is(true, true, "")
	r.holds("EndpointSlice default/a-1 [10.0.0.1]", "Node n", "Service default/a :80")
	return a, p, r
}

func (r *rig) noDeletes() {
	r.Helper()
	for _, entry := range r.sink.entries() {
		if strings.HasPrefix(entry, "delete") {
			r.Errorf("sink heard %q", entry)
		}
	}
}

// A watch that stays open and says nothing more, while TCP, lists and all other
// watches work, is found, whether or not a new one would work.
func TestSilentWatch(t *testing.T) {
	t.Parallel()
	a, p, r := behindProxy(t)
	p.Set(func(f *apiproxy.Faults) { f.Silent["endpointslices"] = true })
	a.Put(kubetest.Slice("a-1", "a", "10.0.0.2"))
	r.holds("EndpointSlice default/a-1 [10.0.0.2]", "Node n", "Service default/a :80")
	if n := r.source.relisted(silent) + r.source.relisted(deaf); n == 0 {
		t.Error("no relist is counted")
	}
	if f := feedOf(r.source.Status(), "endpointslices"); f.Relists == 0 || f.RelistedAt.IsZero() || f.RelistReason == "" {
		t.Errorf("the feed shows no relist: %+v", f)
	}
	// Watches say nothing for good. Changes arrive all the same.
	a.Put(kubetest.Slice("a-1", "a", "10.0.0.3"))
	r.holds("EndpointSlice default/a-1 [10.0.0.3]", "Node n", "Service default/a :80")
	r.noDeletes()
}

// A server that is restored to an older state: deletions and older forms are
// honoured, marked as newer than what they follow.
func TestRewind(t *testing.T) {
	t.Parallel()
	a, _, r := behindProxy(t)
	then := a.Save()
	a.Put(kubetest.Slice("a-1", "a", "10.0.0.2"), kubetest.Service("later", 80))
	r.holds("EndpointSlice default/a-1 [10.0.0.2]", "Node n", "Service default/a :80", "Service default/later :80")
	a.Rewind(then)
	r.holds("EndpointSlice default/a-1 [10.0.0.1]", "Node n", "Service default/a :80")
	r.until("relist for rewound", func() bool { return r.source.relisted(rewound) > 0 })
	r.sink.mu.Lock()
	slice := r.sink.objects[mesh.Key{Kind: mesh.KindEndpointSlice, Namespace: "default", Name: "a-1"}]
	r.sink.mu.Unlock()
	if got := slice.Metadata().Rewinds; got != 1 {
		t.Errorf("after %d rewinds, want 1", got)
	}
	// What happens from there on is followed as ever.
	a.Put(kubetest.Slice("a-1", "a", "10.0.0.3"))
	r.holds("EndpointSlice default/a-1 [10.0.0.3]", "Node n", "Service default/a :80")
	r.is(true, true, "")
}

// A restored server that is ahead again by the time it is looked at: the
// versions of its lists tell nothing.
func TestRewindThatCaughtUp(t *testing.T) {
	t.Parallel()
	a, _, r := behindProxy(t)
	then := a.Save()
	a.Put(kubetest.Slice("a-1", "a", "10.0.0.2"))
	r.holds("EndpointSlice default/a-1 [10.0.0.2]", "Node n", "Service default/a :80")
	a.Stop()
	// No server is restored without being away for a while.
	r.until("outage", func() bool { return !r.source.Status().Connected })
	a.Rewind(then)
	for range 100 {
		a.Tick()
	}
	a.Start()
	r.holds("EndpointSlice default/a-1 [10.0.0.1]", "Node n", "Service default/a :80")
	r.until("relist for rewound", func() bool { return r.source.relisted(rewound) > 0 })
}

// The same, seen from behind: a proxy that answers with the past, and stops doing so.
func TestRewindByProxy(t *testing.T) {
	t.Parallel()
	a, p, r := behindProxy(t)
	then := p.Record()
	a.Put(kubetest.Slice("a-1", "a", "10.0.0.2"))
	r.holds("EndpointSlice default/a-1 [10.0.0.2]", "Node n", "Service default/a :80")
	p.Rewind(then)
	r.holds("EndpointSlice default/a-1 [10.0.0.1]", "Node n", "Service default/a :80")
	p.Resume()
	r.holds("EndpointSlice default/a-1 [10.0.0.2]", "Node n", "Service default/a :80")
}

// A live read that shows the rewind first does not say that all is well.
func TestReadOfRewoundServer(t *testing.T) {
	t.Parallel()
	a := kubetest.NewServer(t)
	then := a.Save()
	a.Put(kubetest.Service("a", 80))
	s := newSource(t, "http://"+a.Address)
	r := run(t, s)
	r.is(true, true, "")
	a.Rewind(then)
	if _, err := s.Read(t.Context(), mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: "a"}); err == nil ||
		!strings.Contains(err.Error(), "the server went back to an older state") {
		t.Errorf("Read: %v", err)
	}
	r.holds()
}

// A first listing that never comes is named, with the time since when.
func TestListThatHangs(t *testing.T) {
	t.Parallel()
	a := kubetest.NewServer(t)
	a.Put(kubetest.Service("a", 80))
	p := apiproxy.Start(t, "http://"+a.Address, nil)
	p.Set(func(f *apiproxy.Faults) { f.Hang["pods"] = true })
	began := time.Now()
	r := run(t, newSource(t, "http://"+p.Address))
	r.is(false, true, "waiting for the first list of pods (no answer from "+p.Address+" to list pods in time)")
	f := feedOf(r.source.Status(), "pods")
	if f.Synced || f.BehindSince.Before(began) || f.BehindSince.After(began.Add(time.Second)) || !strings.Contains(f.Reason, "no answer") {
		t.Errorf("pods: %+v", f)
	}
	r.until("relist for no answer", func() bool { return r.source.relisted(noAnswer) > 0 })
	p.Set(func(f *apiproxy.Faults) { clear(f.Hang) })
	r.is(true, true, "")
}

// Rights that are taken away later, for live reads or for watches alone, are
// told, and nothing that is known goes.
func TestRightsTakenAway(t *testing.T) {
	t.Parallel()
	a, p, r := behindProxy(t)
	p.Set(func(f *apiproxy.Faults) { f.WatchStatus["endpointslices"] = 403; f.WatchStatus["nodes"] = 403 })
	p.Cut()
	r.is(true, false, "forbidden: cannot watch endpointslices")
	r.until("problem", func() bool {
		return slices.ContainsFunc(r.source.Status().Problems, func(p mesh.Problem) bool { return p.Object == "Node *" })
	})
	// Without watches, listings bring what changes.
	a.Put(kubetest.Slice("a-1", "a", "10.0.0.2"))
	r.holds("EndpointSlice default/a-1 [10.0.0.2]", "Node n", "Service default/a :80")
	p.Set(func(f *apiproxy.Faults) { clear(f.WatchStatus) })
	r.is(true, true, "")
	r.until("no problem", func() bool { return len(r.source.Status().Problems) == 0 })
	r.noDeletes()
}

// Whatever the server answers instead of a listing takes nothing away.
func TestNoFaultRemovesAnything(t *testing.T) {
	t.Parallel()
	a, p, r := behindProxy(t)
	for _, fault := range []func(*apiproxy.Faults){
		func(f *apiproxy.Faults) { f.Status[""] = 429 },
		func(f *apiproxy.Faults) { f.Status[""] = 500 },
		func(f *apiproxy.Faults) { f.Status[""] = 401 },
		func(f *apiproxy.Faults) { f.Hang[""], f.Silent[""] = true, true },
	} {
		p.Set(fault)
		p.Cut()
		r.until("trouble", func() bool { return !r.source.Status().Connected })
		p.Set(func(f *apiproxy.Faults) { clear(f.Status); clear(f.Hang); clear(f.Silent) })
		r.is(true, true, "")
	}
	r.noDeletes()
	a.Put(kubetest.Slice("a-1", "a", "10.0.0.2"))
	r.holds("EndpointSlice default/a-1 [10.0.0.2]", "Node n", "Service default/a :80")
}

// pipes is a net.Listener in memory, whose connections know deadlines.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// inBubble runs a source with the default times over a server in a synctest bubble.
func inBubble(t *testing.T, a *kubetest.Server) *rig {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: a}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	transport := &http.Transport{DialContext: l.dial}
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://api", QPS: 1000, Burst: 1000}, &http.Client{Transport: transport})
	must(t, err)
	s := NewForClient(client, "api", Config{})
	s.dropConnections = transport.CloseIdleConnections
	r := run(t, s)
	t.Cleanup(func() {
		r.stop()
		_ = server.Close()
		served.Wait()
	})
	return r
}

// Every fault is found within the check interval, whenever it begins, and
// counted for what it is, with and without listings that come as the first
// events of a watch. Time is the bubble's, so the bound is exact.
func TestFoundWithinTheInterval(t *testing.T) {
	old, next := kubetest.Slice("a-1", "a", "10.0.0.1"), kubetest.Slice("a-1", "a", "10.0.0.2")
	change := func(a *kubetest.Server) { a.Put(next) }
	mute := func(a *kubetest.Server) { a.Set(func(f *kubetest.Faults) { f.Mute["endpointslices"] = true }) }
	for name, tt := range map[string]struct {
		fault  func(a *kubetest.Server, before kubetest.State)
		want   string
		reason relistReason
	}{
		"a watch that neither speaks nor ends": {func(a *kubetest.Server, _ kubetest.State) {
			a.Set(func(f *kubetest.Faults) { f.Deaf["endpointslices"] = true })
			change(a)
		}, "10.0.0.2", silent},
		"a watch that ends and does not speak": {func(a *kubetest.Server, _ kubetest.State) { mute(a); change(a) }, "10.0.0.2", deaf},
		"a replacement that it does not deliver": {func(a *kubetest.Server, _ kubetest.State) {
			mute(a)
			a.Remove(old)
			change(a)
		}, "10.0.0.2", deaf},
		"a server that goes back": {func(a *kubetest.Server, before kubetest.State) { a.Rewind(before) }, "10.0.0.0", rewound},
	} {
		t.Run(name, func(t *testing.T) {
			for phase := range 24 {
				synctest.Test(t, func(t *testing.T) {
					a := kubetest.New(t)
					a.Set(func(f *kubetest.Faults) { f.Streaming = phase%2 == 1 })
					a.Put(kubetest.Service("a", 80), kubetest.Slice("a-1", "a", "10.0.0.0"))
					before := a.Save()
					a.Put(old)
					r := inBubble(t, a)
					time.Sleep(time.Minute + time.Duration(phase)*550*time.Millisecond) // bubble time
					a.Tick()
					tt.fault(a, before)
					time.Sleep(30 * time.Second) // bubble time: the interval
					synctest.Wait()
					if got := r.sink.view(); !strings.Contains(got, tt.want) {
						t.Errorf("phase %d: after 30 s: %s", phase, got)
					}
					// A server that streams listings may cure a deaf watch by the listing that the next one begins with.
					if n := r.source.relisted(tt.reason); n == 0 && phase%2 == 0 {
						t.Errorf("phase %d: not counted as %s: %+v", phase, tt.reason, r.source.Status().Feeds)
					}
				})
			}
		})
	}
}

// A quiet resource is no alarm: hours in which nothing changes, in a cluster
// where other things do, or nothing at all, with and without bookmarks.
func TestQuietHours(t *testing.T) {
	for name, tt := range map[string]struct {
		ticks, noBookmarks bool
		// lists bounds the full lists of pods in three hours.
		lists int
	}{
		"nothing changes at all":                      {false, false, 10},
		"other things change":                         {true, false, 1000},
		"nothing changes, no bookmarks":               {false, true, 10},
		"other things change, bookmarks are not sent": {true, true, 1100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := kubetest.New(t)
				a.Put(kubetest.Service("a", 80), kubetest.Slice("a-1", "a", "10.0.0.1"), kubetest.Node("n"))
				a.Set(func(f *kubetest.Faults) { f.NoBookmarks = tt.noBookmarks })
				r := inBubble(t, a)
				synctest.Wait()
				for range 3 * 360 {
					time.Sleep(10 * time.Second) // bubble time
					if st := r.source.Status(); !st.Connected || !st.Synced {
						t.Fatalf("an alarm: %+v", st)
					}
					if tt.ticks {
						a.Tick()
					}
				}
				for _, reason := range relistReasons {
					if n := r.source.relisted(reason); n != 0 {
						t.Errorf("%d relists for %s", n, reason)
					}
				}
				for _, f := range r.source.Status().Feeds {
					if age := time.Since(f.CheckedAt); age > 30*time.Second || !f.BehindSince.IsZero() {
						t.Errorf("%s was proven right %v ago, behind since %v", f.Name, age, f.BehindSince)
					}
				}
				n := a.Count("list pods")
				t.Logf("in 3 hours: %d full lists of pods, %d probes, %d watches", n, a.Count("probe pods"), a.Count("watch pods"))
				if n > tt.lists {
					t.Errorf("%d full lists of pods, want at most %d", n, tt.lists)
				}
				// It is not only quiet: it would have found something.
				a.Set(func(f *kubetest.Faults) { f.Mute["services"] = true })
				a.Put(kubetest.Service("a", 81))
				time.Sleep(30 * time.Second) // bubble time: the interval
				synctest.Wait()
				if got := r.sink.view(); !strings.Contains(got, "Service default/a :81") {
					t.Errorf("a change that the watch did not deliver is not there after 30 s: %s", got)
				}
			})
		})
	}
}
