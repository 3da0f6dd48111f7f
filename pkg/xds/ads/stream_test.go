package ads_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
)

// bench is a stream and its store, for tests of one rule.
type bench struct {
	t     *testing.T
	store *snapshot.Store
	s     *ads.Stream
	now   time.Time
}

func newBench(t *testing.T, c ads.Config) *bench {
	t.Helper()
	b := &bench{t: t, store: snapshot.New(snapshot.Config{}), now: time.Unix(0, 0)}
	c.NoncePrefix = "s."
	c.Policy = ack.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 5 * time.Second}
	b.s = ads.New(c, b.store.View(mesh.View{}), b.now)
	return b
}

func (b *bench) publish(u mesh.Update) {
	b.store.Publish(u, b.now)
	b.s.Published(b.store.View(mesh.View{}))
}

func (b *bench) next() *ads.Response {
	r := b.s.Next(b.now)
	b.s.Sent()
	return r
}

func (b *bench) ack(r *ads.Response) ads.Outcome {
	return b.s.Request(ads.Request{Type: r.Type, Nonce: r.Nonce}, b.now)
}

func eds(name string, label int) mesh.Resource { return resource(mesh.TypeEndpoint, name, label, 0) }

// However often something else of the type changes, a removal is told in time.
func TestRemovalIsNotStarved(t *testing.T) {
	b := newBench(t, ads.Config{Delta: true})
	b.publish(mesh.Update{Put: []mesh.Resource{eds("A", 0), eds("B", 0)}})
	b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Subscribe: []string{"A", "B"}}, b.now)
	b.ack(b.next())
	b.publish(mesh.Update{
		Put:    []mesh.Resource{eds("A", 1)},
		Remove: []mesh.Removal{{ResourceName: mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "B"}}},
	})
	for i := range 100 {
		r := b.next()
		if len(r.Removed) > 0 {
			if b.now.Sub(time.Unix(0, 0)) < time.Second {
				t.Error("the removal does not come last")
			}
			return
		}
		b.now = b.now.Add(100 * time.Millisecond)
		b.publish(mesh.Update{Put: []mesh.Resource{eds("A", i+2)}}) // before the answer
		b.ack(r)
	}
	t.Error("the removal is not told within 10 s")
}

// What a client asks for is not on its way because of a change.
func TestAskingIsNoPropagation(t *testing.T) {
	b := newBench(t, ads.Config{Delta: true})
	b.publish(mesh.Update{Put: []mesh.Resource{eds("A", 0)}})
	changed := b.now.Add(time.Hour)
	b.now = changed
	b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Subscribe: []string{"A"}}, b.now)
	if out := b.ack(b.next()); out.Answer != ads.Acked || len(out.Changes) > 0 {
		t.Errorf("a new subscription: %+v", out)
	}
	b.publish(mesh.Update{Put: []mesh.Resource{eds("A", 1)}})
	b.now = b.now.Add(time.Second)
	if out := b.ack(b.next()); len(out.Changes) != 1 || !out.Changes[0].PublishedAt.Equal(changed) {
		t.Errorf("a change: %+v, want %v", out, changed)
	}
}

func TestMaxBytesBoundsRemovals(t *testing.T) {
	b := newBench(t, ads.Config{Delta: true, MaxBytes: 1000})
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("%03d%s", i, strings.Repeat("x", 50)))
	}
	b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Subscribe: names}, b.now)
	told := 0
	for r := b.next(); r != nil; r = b.next() {
		size := 0
		for _, name := range r.Removed {
			size += len(name)
		}
		if size > 1000 {
			t.Fatalf("a response tells %d bytes of names", size)
		}
		told += len(r.Removed)
		b.ack(r)
	}
	if told != len(names) {
		t.Errorf("told of %d, want %d", told, len(names))
	}
}

func TestTooManyInitialVersions(t *testing.T) {
	b := newBench(t, ads.Config{Delta: true, MaxNames: 3})
	b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Initial: map[string]string{"a": "1", "b": "1", "c": "1", "d": "1"}}, b.now)
	if reason := b.s.Tick(b.now); reason != ads.CloseTooManyNames {
		t.Errorf("reason %q", reason)
	}
}

// A stream is not too far behind in what it does not subscribe to any more.
func TestTooFarBehindNeedsASubscription(t *testing.T) {
	b := newBench(t, ads.Config{Delta: true})
	b.store = snapshot.New(snapshot.Config{LogLimit: 2})
	b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Subscribe: []string{"A"}}, b.now)
	b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Unsubscribe: []string{"A"}}, b.now)
	for i := range 5 {
		b.store.Publish(mesh.Update{Put: []mesh.Resource{eds("A", i)}}, b.now)
	}
	b.s.Published(b.store.View(mesh.View{}))
	if reason := b.s.Tick(b.now); reason != "" {
		t.Errorf("closed: %s", reason)
	}
	b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Subscribe: []string{"A"}}, b.now)
	if r := b.next(); r == nil || len(r.Resources) != 1 {
		t.Errorf("got %+v", r)
	}
	b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Subscribe: []string{"*"}}, b.now)
	for i := range 5 {
		b.store.Publish(mesh.Update{Put: []mesh.Resource{eds("A", 9-i)}}, b.now)
	}
	b.s.Published(b.store.View(mesh.View{}))
	if reason := b.s.Tick(b.now); reason != ads.CloseTooFarBehind {
		t.Errorf("reason %q, want too far behind", reason)
	}
}

// Changes of names that others subscribe to fill the log between two looks of a
// stream that nobody wakes: it is no further behind for that, and is sent what it
// lacks and nothing else.
func TestChangesOfOtherNamesDoNotEndTheStream(t *testing.T) {
	for _, delta := range []bool{true, false} {
		b := newBench(t, ads.Config{Delta: delta})
		b.store = snapshot.New(snapshot.Config{LogLimit: 2})
		names := []string{"A", "B", "missing"}
		answer := func(r *ads.Response) {
			b.s.Request(ads.Request{Type: r.Type, Nonce: r.Nonce, Names: names}, b.now)
		}
		publish := func(u mesh.Update) { b.store.Publish(u, b.now) }
		flood := func() {
			for i := range 10 {
				publish(mesh.Update{Put: []mesh.Resource{eds("other", i)}})
				b.now = b.now.Add(time.Second)
			}
		}
		publish(mesh.Update{Put: []mesh.Resource{eds("A", 1), eds("B", 1)}})
		b.s.Published(b.store.View(mesh.View{}))
		b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Subscribe: names, Names: names}, b.now)
		answer(b.next())
		if r := b.next(); r != nil { // delta: what does not exist
			answer(r)
		}
		for _, step := range []struct {
			what string
			do   func()
			want string
		}{
			{"only others change", func() {}, ""},
			{"a name changes", func() { publish(mesh.Update{Put: []mesh.Resource{eds("A", 2)}}) }, "A"},
			{"one comes", func() { publish(mesh.Update{Put: []mesh.Resource{eds("missing", 1)}}) }, "missing"},
			{"one goes", func() {
				publish(mesh.Update{Remove: []mesh.Removal{{ResourceName: mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "B"}}}})
			}, ""},
		} {
			step.do()
			flood()
			b.s.Published(b.store.View(mesh.View{}))
			if reason := b.s.Tick(b.now); reason != "" {
				t.Fatalf("%s, delta %v: closed for %s", step.what, delta, reason)
			}
			var got, gone []string
			for r := b.next(); r != nil; r = b.next() {
				for _, body := range r.Resources {
					if !r.Probe {
						got = append(got, body.Name.Value())
					}
				}
				gone = append(gone, r.Removed...)
				answer(r)
			}
			if strings.Join(got, " ") != step.want {
				t.Errorf("%s, delta %v: %v were sent, want %s", step.what, delta, got, step.want)
			}
			if step.what == "one goes" && delta != slices.Contains(gone, "B") {
				t.Errorf("%s, delta %v: removed %v", step.what, delta, gone)
			}
			if st := b.s.Acks().State(mesh.TypeEndpoint, b.now, b.s.View()); st.State != ack.Fresh || st.Behind != 0 {
				t.Errorf("%s, delta %v: %+v", step.what, delta, st)
			}
		}
	}
}

// How far behind a client is counts versions, those too that came and went before
// the stream looked, and those that came while a response was under way.
func TestVersionsBehind(t *testing.T) {
	b := newBench(t, ads.Config{Delta: true})
	behind := func() (versions int) {
		st := b.s.Acks().State(mesh.TypeEndpoint, b.now, b.s.View())
		for _, r := range b.s.Acks().Behind(mesh.TypeEndpoint, b.s.View()) {
			versions = max(versions, r.Versions)
		}
		if versions != st.BehindVersions {
			t.Errorf("the type is %d versions behind, its resources %d", st.BehindVersions, versions)
		}
		return versions
	}
	b.publish(mesh.Update{Put: []mesh.Resource{eds("A", 1)}})
	b.s.Request(ads.Request{Type: mesh.TypeEndpoint, Subscribe: []string{"A"}}, b.now)
	b.ack(b.next())
	for label := range 3 {
		b.store.Publish(mesh.Update{Put: []mesh.Resource{eds("A", 2+label), eds("other", label)}}, b.now)
	}
	b.s.Published(b.store.View(mesh.View{}))
	if got := behind(); got != 3 {
		t.Errorf("%d versions behind, want 3", got)
	}
	r := b.next()
	b.publish(mesh.Update{Put: []mesh.Resource{eds("A", 5)}})
	if got := behind(); got != 4 {
		t.Errorf("%d versions behind, want 4", got)
	}
	b.ack(r)
	if got := behind(); got != 1 {
		t.Errorf("%d versions behind, want 1", got)
	}
	b.ack(b.next())
	if got := behind(); got != 0 {
		t.Errorf("%d versions behind, want 0", got)
	}
}
