package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// narrow is a backend whose connections carry one stream each, and which says its name when let.
type narrow struct {
	*backend
	let          chan struct{}
	active, most atomic.Int64
}

func newNarrow(t testing.TB, name string) *narrow {
	t.Helper()
	n := &narrow{let: make(chan struct{})}
	n.backend = &backend{t: t, name: name, addr: testaddr.Free(t, "127.0.0.1"), h: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		now := n.active.Add(1)
		defer n.active.Add(-1)
		for m := n.most.Load(); now > m && !n.most.CompareAndSwap(m, now); m = n.most.Load() {
		}
		select {
		case <-n.let:
		case <-q.Context().Done():
		}
		w.Header().Set("Content-Type", q.Header.Get("Content-Type"))
		_, _ = w.Write([]byte(name))
	}), streams: 1}
	n.start()
	t.Cleanup(n.kill)
	return n
}

// asked are requests under way, with what they have heard.
type asked struct {
	sync.WaitGroup
	mu  sync.Mutex // guards all below
	all []told
}

func (a *asked) heard() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

func (r *rig) askAll(a *asked, ctx context.Context, n int, grpc bool, change ...func(*http.Request)) { //nolint:revive // a is what it returns to
	for range n {
		a.Go(func() {
			got := r.ask(ctx, grpc, echo, change...)
			a.mu.Lock()
			a.all = append(a.all, got)
			a.mu.Unlock()
		})
	}
}

// pending is how many wait, and how many were shed for that.
func (r *rig) pending() (active, shed uint64) {
	b := r.set.Status()[0].Breakers[endpoints.Pending]
	return b.Active, b.Shed
}

func (r *rig) waiting(n uint64) {
	r.t.Helper()
	testwait.Until(r.t, fmt.Sprintf("%d wait", n), func() bool { active, _ := r.pending(); return active == n })
}

// both runs f for the two kinds of clients: what waits is a stream, or a goroutine.
func both(t *testing.T, f func(t *testing.T, grpc bool)) {
	t.Helper()
	for _, grpc := range []bool{false, true} {
		t.Run(map[bool]string{false: "client HTTP/1.1", true: "client HTTP/2"}[grpc], func(t *testing.T) { f(t, grpc) })
	}
}

// TestQueueForAStream: one stream on one connection serves all, one after another.
func TestQueueForAStream(t *testing.T) {
	both(t, func(t *testing.T, grpc bool) {
		r := newRig(t)
		b := newNarrow(t, "b")
		r.put2(true, oneConnection, b.addr)
		var a asked
		r.askAll(&a, t.Context(), 50, grpc)
		r.waiting(49)
		close(b.let)
		a.Wait()
		for _, got := range a.all {
			if got.status != http.StatusOK || got.line != "b" || got.proxyStatus != "" {
				t.Fatalf("%+v", got)
			}
		}
		if n := b.most.Load(); n != 1 {
			t.Errorf("%d at once", n)
		}
		if active, shed := r.pending(); active != 0 || shed != 0 {
			t.Errorf("%d wait, %d were shed", active, shed)
		}
		if n := r.set.Status()[0].Endpoints[0].Total.ConnectFailed; n != 0 {
			t.Errorf("%d failed dials", n)
		}
	})
}

// TestQueueIsBounded: more than may be pending are told the stream limit, and so is whoever's deadline passes in the
// queue; nobody stays in it then, and the endpoint is as good as before.
func TestQueueIsBounded(t *testing.T) {
	both(t, func(t *testing.T, grpc bool) {
		r := newRig(t)
		b := newNarrow(t, "b")
		r.put2(true, func(c *discovery.Cluster) {
			oneConnection(c)
			c.Breakers[0].Pending = 3
			c.Timeout = time.Minute
		}, b.addr)
		r.occupy(1, grpc)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var a asked
		r.askAll(&a, ctx, 3, grpc)
		r.waiting(3)
		limit := "reason=" + string(upstream.StreamLimit)
		if got := r.ask(t.Context(), grpc, echo); !strings.Contains(got.proxyStatus, limit) || !strings.Contains(got.line, "3 requests wait") {
			t.Errorf("over the limit: %+v", got)
		}
		if _, shed := r.pending(); shed != 1 {
			t.Errorf("%d were shed", shed)
		}
		cancel()
		a.Wait()
		r.waiting(0)
		r.put2(true, func(c *discovery.Cluster) {
			oneConnection(c)
			c.Timeout = 500 * time.Millisecond // it gets to the queue within that on a busy machine too
		}, b.addr)
		got := r.ask(t.Context(), grpc, echo)
		if !strings.Contains(got.proxyStatus, limit) || !strings.Contains(got.proxyStatus, "deadline exceeded while waiting for a stream") || !strings.Contains(got.proxyStatus, b.addr) {
			t.Errorf("late: %+v", got)
		}
		r.waiting(0)
		if e := r.set.Status()[0].Endpoints[0]; e.Ejected || e.Total.ConnectFailed > 0 {
			t.Errorf("the full endpoint: %+v", e)
		}
	})
}

// TestQueueOnlyWhereAllAreFull: who finds an endpoint full goes to one that has room.
func TestQueueOnlyWhereAllAreFull(t *testing.T) {
	both(t, func(t *testing.T, grpc bool) {
		r := newRig(t)
		let := make(chan struct{})
		full, wide := newNarrow(t, "full"), newBackend(t, "wide", func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get("Hold") != "" {
				<-let
			}
			_, _ = w.Write([]byte("wide"))
		})
		// Both have their connection, which is in use.
		var a asked
		r.put2(true, oneConnection, wide.addr)
		r.askAll(&a, t.Context(), 1, grpc, func(q *http.Request) { q.Header.Set("Hold", "yes") })
		testwait.Until(t, "one is at the wide one", func() bool { return r.set.Status()[0].Endpoints[0].Total.Issued == 1 })
		r.put2(true, func(c *discovery.Cluster) { c.Breakers[0].Connections = 2 }, wide.addr, full.addr)
		for n := 1; full.active.Load() == 0; n++ {
			r.askAll(&a, t.Context(), 1, grpc)
			testwait.Until(t, "it is there", func() bool { return full.active.Load() == 1 || a.heard() == n })
		}
		for range 20 {
			if got := r.ask(t.Context(), grpc, echo); got.line != "wide" {
				t.Fatalf("%+v", got)
			}
			if active, _ := r.pending(); active != 0 {
				t.Fatalf("%d wait", active)
			}
		}
		close(let)
		close(full.let)
		a.Wait()
	})
}

// TestQueueOfRemovedEndpoint: who waits at an endpoint that is removed goes to another one.
func TestQueueOfRemovedEndpoint(t *testing.T) {
	both(t, func(t *testing.T, grpc bool) {
		r := newRig(t)
		old, next := newNarrow(t, "old"), newBackend(t, "next", nil)
		r.put2(true, oneConnection, old.addr)
		r.occupy(1, grpc)
		var a asked
		r.askAll(&a, t.Context(), 5, grpc)
		r.waiting(5)
		r.put2(true, nil, next.addr)
		a.Wait()
		for _, got := range a.all {
			if got.line != "next" {
				t.Errorf("%+v", got)
			}
		}
		r.waiting(0)
	})
}

// TestQueueGetsAConnection: who waits gets a connection when there may be one: by a higher limit, or since one to another endpoint has closed.
func TestQueueGetsAConnection(t *testing.T) {
	limit := func(n uint32) func(*discovery.Cluster) {
		return func(c *discovery.Cluster) { c.Breakers[0].Connections = n }
	}
	for name, free := range map[string]func(r *rig, one, other *narrow){
		"a higher limit": func(r *rig, one, _ *narrow) { r.put2(true, limit(3), one.addr) },
		"another's end":  func(_ *rig, _, other *narrow) { close(other.let) },
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, grpc bool) {
				r := newRig(t)
				one, other := newNarrow(t, "one"), newNarrow(t, "other")
				var a asked
				for _, n := range []*narrow{other, one} {
					r.put2(true, limit(2), n.addr)
					r.askAll(&a, t.Context(), 1, grpc)
					testwait.Until(t, n.name+" is full", func() bool { return n.active.Load() == 1 })
				}
				r.askAll(&a, t.Context(), 8, grpc)
				r.waiting(8)
				free(r, one, other)
				testwait.Until(t, "another connection", func() bool { return one.active.Load() > 1 })
				close(one.let)
				if name != "another's end" {
					close(other.let)
				}
				a.Wait()
			})
		})
	}
}

// TestQueueWhileNoneIsAllowed: a limit that falls to 0 for a while is waited for, and no connection is made for it.
func TestQueueWhileNoneIsAllowed(t *testing.T) {
	both(t, func(t *testing.T, grpc bool) {
		r := newRig(t)
		var dials atomic.Int64
		var f *http2.Framer
		var mu sync.Mutex // guards f, and writing on it
		limit := func(n uint32) {
			mu.Lock()
			defer mu.Unlock()
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: n})
		}
		r.put2(true, nil, acceptor(t, func(c net.Conn) {
			dials.Add(1)
			_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
			mu.Lock()
			f = http2.NewFramer(c, c)
			mu.Unlock()
			limit(0)
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					return
				}
				if h, ok := frame.(*http2.HeadersFrame); ok {
					mu.Lock()
					// An indexed field: :status 200.
					_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true})
					mu.Unlock()
				}
			}
		}))
		var a asked
		r.askAll(&a, t.Context(), 5, grpc)
		r.waiting(5)
		limit(100)
		a.Wait()
		for _, got := range a.all {
			if got.status != http.StatusOK || got.proxyStatus != "" {
				t.Errorf("%+v", got)
			}
		}
		if n := dials.Load(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}
