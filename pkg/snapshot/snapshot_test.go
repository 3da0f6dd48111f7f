package snapshot_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

const eds = mesh.TypeEndpoint

var at = time.Unix(1000, 0)

func plain(name, body string) mesh.Resource {
	return mesh.Resource{Type: eds, Name: name, Body: []byte(body)}
}

func shaped(name, body string, shape func(mesh.View) string) mesh.Resource {
	r := plain(name, body)
	r.ShapedBy, r.Shape = mesh.ByZone, func(v mesh.View) []byte { return []byte(shape(v)) }
	return r
}

func seenBy(r mesh.Resource, kind mesh.ListenerKind) mesh.Resource {
	r.For = kind
	return r
}

func put(s *snapshot.Store, rs ...mesh.Resource) bool {
	_, changed := s.Publish(mesh.Update{Put: rs}, at)
	return changed
}

func remove(s *snapshot.Store, names ...string) bool {
	var u mesh.Update
	for _, name := range names {
		u.Remove = append(u.Remove, mesh.Removal{ResourceName: mesh.ResourceName{Type: eds, Name: name}})
	}
	_, changed := s.Publish(u, at)
	return changed
}

func value(v snapshot.View, name string) string {
	b := v.Body(eds, mesh.Intern(name))
	if b == nil {
		return "absent"
	}
	return string(b.Value())
}

// since gives "name:was>now" for each change, "-" for absent.
func since(t *testing.T, v snapshot.View, g mesh.Generation) []string {
	t.Helper()
	changes, ok := v.Since(eds, g)
	if !ok {
		return []string{"too far"}
	}
	var out []string
	for _, c := range changes {
		was, now := string(c.Was), "-"
		for _, text := range []string{"1", "2", "3", "a", "b"} {
			if c.Was == mesh.VersionOf([]byte(text)) {
				was = text
			}
		}
		if c.Was == "" {
			was = "-"
		}
		if c.Body != nil {
			now = string(c.Body.Value())
		}
		out = append(out, c.Name.Value()+":"+was+">"+now)
	}
	return out
}

func TestSameBytesMakeNoGeneration(t *testing.T) {
	s := snapshot.New(snapshot.Config{})
	if !put(s, plain("x", "1"), plain("y", "")) || put(s, plain("x", "1"), plain("y", "")) || remove(s, "z") {
		t.Error("only what differs is a change")
	}
	if g := s.Snapshot().Generation(); g != 1 {
		t.Errorf("generation %d, want 1", g)
	}
	if put(s, plain("x", "1"), plain("y", "2")); value(s.View(mesh.View{}), "y") != "2" || s.Snapshot().Generation() != 2 {
		t.Error("an empty body that gets bytes is a change")
	}
}

// Each case publishes steps, and says what a view is told from generation `from`.
func TestSince(t *testing.T) {
	zone := mesh.View{Listeners: mesh.ListenersAPI, Zone: "z"}
	byZone := func(v mesh.View) string { return "b" }
	tests := []struct {
		name  string
		view  mesh.View
		steps []any // resources to put, names to remove
		from  mesh.Generation
		want  []string
	}{
		{name: "merged into one", steps: []any{plain("x", "1"), plain("x", "2"), plain("x", "3")}, from: 1, want: []string{"x:1>3"}},
		{name: "there and back", steps: []any{plain("x", "1"), plain("x", "2"), plain("x", "1")}, from: 1},
		{name: "and seen in between", steps: []any{plain("x", "1"), plain("x", "2"), plain("x", "1")}, from: 2, want: []string{"x:2>1"}},
		{name: "tombstone", steps: []any{plain("x", "1"), "x"}, from: 1, want: []string{"x:1>-"}},
		{name: "came and went", steps: []any{plain("y", "1"), plain("x", "1"), "x"}, from: 1},
		{name: "removed and made again", steps: []any{plain("x", "1"), "x", plain("x", "1")}, from: 1},
		{name: "and seen in between", steps: []any{plain("x", "1"), "x", plain("x", "1")}, from: 2, want: []string{"x:->1"}},
		{
			name: "order of first change", steps: []any{plain("x", "1"), plain("y", "1"), plain("x", "2"), plain("z", "1")},
			from: 1, want: []string{"y:->1", "x:1>2", "z:->1"},
		},
		{
			name: "hidden", view: zone, steps: []any{plain("x", "1"), seenBy(plain("x", "1"), mesh.ListenersSocket)},
			from: 1, want: []string{"x:1>-"},
		},
		{
			name: "hidden and back", view: zone,
			steps: []any{plain("x", "1"), seenBy(plain("x", "1"), mesh.ListenersSocket), plain("x", "1")}, from: 2, want: []string{"x:->1"},
		},
		{
			name: "changed while hidden", view: zone,
			steps: []any{seenBy(plain("x", "1"), mesh.ListenersSocket), seenBy(plain("x", "2"), mesh.ListenersSocket)}, from: 1,
		},
		{
			name: "a shape goes away", view: zone, steps: []any{shaped("x", "1", byZone), plain("x", "1")},
			from: 1, want: []string{"x:b>1"},
		},
		{
			name: "a shape comes", view: zone, steps: []any{plain("x", "1"), shaped("x", "1", byZone)},
			from: 1, want: []string{"x:1>b"},
		},
		{
			name: "a shape that stays", view: zone, steps: []any{shaped("x", "1", byZone), shaped("x", "2", byZone)}, from: 1,
		},
		{
			name: "a view without the field has the base", steps: []any{shaped("x", "1", byZone), shaped("x", "2", byZone)},
			from: 1, want: []string{"x:1>2"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := snapshot.New(snapshot.Config{})
			r := s.Open(test.view, nil)
			defer r.Close()
			for _, step := range test.steps {
				switch step := step.(type) {
				case mesh.Resource:
					put(s, step)
				case string:
					remove(s, step)
				}
				value(r.View(), "x") // somebody has asked for the form
			}
			if got := since(t, r.View(), test.from); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// A form that nobody had asked for is not known, and so not the same.
func TestSinceOfAnUnaskedForm(t *testing.T) {
	s := snapshot.New(snapshot.Config{})
	r := s.Open(mesh.View{Zone: "z"}, nil)
	defer r.Close()
	put(s, shaped("x", "1", func(mesh.View) string { return "b" }))
	old := r.View()
	put(s, shaped("x", "2", func(mesh.View) string { return "1" }))
	if got := value(old, "x"); got != "b" {
		t.Errorf("the old view sees %q", got)
	}
	if got := since(t, r.View(), 1); !slices.Equal(got, []string{"x:unknown>1"}) {
		t.Errorf("from b to the bytes of the base before is a change, got %v", got)
	}
}

func TestFormsKeepTheirBody(t *testing.T) {
	s := snapshot.New(snapshot.Config{})
	a, b := s.Open(mesh.View{Zone: "a"}, nil), s.Open(mesh.View{Zone: "b"}, nil)
	defer a.Close()
	defer b.Close()
	put(s, shaped("x", "1", func(v mesh.View) string { return v.Zone + "1" }))
	x := mesh.Intern("x")
	a1, b1 := a.View().Body(eds, x), b.View().Body(eds, x)
	put(s, shaped("x", "2", func(v mesh.View) string {
		if v.Zone == "a" {
			return "a1"
		}
		return v.Zone + "2"
	}))
	if a.View().Body(eds, x) != a1 {
		t.Error("the form of zone a did not change, and is another Body")
	}
	if got := b.View().Body(eds, x); got == b1 || got.Changed != 2 || string(got.Value()) != "b2" {
		t.Errorf("the form of zone b is %q of generation %d", got.Value(), got.Changed)
	}
	if got := since(t, a.View(), 1); got != nil {
		t.Errorf("zone a is told %v", got)
	}
}

func TestLogLimit(t *testing.T) {
	s := snapshot.New(snapshot.Config{LogLimit: 3})
	for i := range 5 {
		put(s, plain("x", fmt.Sprint(i)), mesh.Resource{Type: mesh.TypeRoute, Name: fmt.Sprint(i % 2)})
	}
	v := s.View(mesh.View{})
	for g, ok := range map[mesh.Generation]bool{0: false, 1: false, 2: true, 3: true, 5: true, 9: true} {
		if _, got := v.Since(eds, g); got != ok {
			t.Errorf("since %d: %v, want %v", g, got, ok)
		}
	}
	if _, ok := v.Since(mesh.TypeRoute, 0); !ok {
		t.Error("the log of another type is full, too")
	}
	if _, ok := v.Since("never.seen", 0); !ok {
		t.Error("a type without resources has no log to be behind of")
	}
}

func TestOwnWins(t *testing.T) {
	s := snapshot.New(snapshot.Config{})
	put(s, plain("x", "1"), plain("y", "1"))
	r := s.Open(mesh.View{}, snapshot.NewOwn([]mesh.Resource{plain("x", "own"), plain("z", "own")}))
	defer r.Close()
	put(s, plain("x", "2"))
	remove(s, "y")
	v := r.View()
	if value(v, "x") != "own" || value(v, "y") != "absent" || value(v, "z") != "own" {
		t.Errorf("x %q y %q z %q", value(v, "x"), value(v, "y"), value(v, "z"))
	}
	if got := since(t, v, 1); !slices.Equal(got, []string{"y:1>-"}) {
		t.Errorf("told %v", got)
	}
	count, sum := v.Total(eds)
	all := v.All(eds)
	if count != 2 || len(all) != 2 || all[0].Name.Value() != "x" || all[0].Sum^all[1].Sum != sum {
		t.Errorf("total %d, all %v", count, all)
	}
	remove(s, "x")
	if value(r.View(), "x") != "own" {
		t.Error("its own resource went with the store's")
	}
}

// woken tells, without waiting, whether a reader was woken. Publish wakes before it returns.
func woken(r *snapshot.Reader) bool {
	select {
	case <-r.Woken():
		return true
	default:
		return false
	}
}

func TestWakesOnlyTheInterested(t *testing.T) {
	s := snapshot.New(snapshot.Config{})
	all, x, y, other := s.Open(mesh.View{}, nil), s.Open(mesh.View{}, nil), s.Open(mesh.View{}, nil), s.Open(mesh.View{}, nil)
	all.SubscribeAll(eds, true)
	x.Subscribe(eds, mesh.Intern("x"))
	y.Subscribe(eds, mesh.Intern("y"))
	other.SubscribeAll(mesh.TypeRoute, true)
	check := func(step string, want ...bool) {
		t.Helper()
		for i, r := range []*snapshot.Reader{all, x, y, other} {
			if got := woken(r); got != want[i] {
				t.Errorf("%s: reader %d woken %v, want %v", step, i, got, want[i])
			}
		}
	}
	put(s, plain("x", "1"))
	check("put x", true, true, false, false)
	put(s, plain("x", "1"))
	check("put x unchanged", false, false, false, false)
	put(s, plain("x", "2"), plain("y", "2"), plain("z", "2"))
	check("put x, y, z", true, true, true, false)
	remove(s, "x")
	check("remove x", true, true, false, false)
	all.SubscribeAll(eds, false)
	x.Unsubscribe(eds, mesh.Intern("x"), mesh.Intern("never"))
	put(s, plain("x", "3"))
	check("after unsubscribing", false, false, false, false)
	y.Unsubscribe(eds, mesh.Intern("y"))
	other.SubscribeAll(mesh.TypeRoute, false)
	for _, r := range []*snapshot.Reader{all, x, y, other} {
		r.Close()
	}
	if n := s.Remembered(); n != 0 {
		t.Errorf("%d views and types are remembered after all is closed", n)
	}
}

// A reader that subscribes and then looks either sees a change or is woken for it.
func TestSubscribeThenReadMissesNothing(t *testing.T) {
	s := snapshot.New(snapshot.Config{})
	const last = 300
	x := mesh.Intern("x")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			r := s.Open(mesh.View{Zone: fmt.Sprint(i % 2)}, nil)
			defer r.Close()
			r.Subscribe(eds, x)
			defer r.Unsubscribe(eds, x)
			timeout := time.NewTimer(time.Minute)
			defer timeout.Stop()
			for {
				v := r.View()
				v.All(eds)
				v.Total(eds)
				v.Since(eds, v.Generation()/2)
				if v.Generation() == last {
					return
				}
				select {
				case <-r.Woken():
				case <-timeout.C:
					t.Error("a change was missed")
					return
				}
			}
		})
	}
	for i := range last {
		put(s, shaped("x", fmt.Sprint(i), func(v mesh.View) string { return fmt.Sprint(v.Zone, i/3) }))
	}
	wg.Wait()
}
