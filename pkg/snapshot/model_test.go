package snapshot_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"pgregory.net/rapid"
)

// seen is what a view saw at a generation: name → bytes.
type seen map[string]string

// TestAgainstMap: every view of every generation agrees with a naive map, and
// Since tells exactly the difference between any two of them.
func TestAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{1000, 7}).Draw(t, "log limit")
		s := snapshot.New(snapshot.Config{LogLimit: limit})
		keys := []mesh.View{{}, {Listeners: mesh.ListenersAPI, Zone: "a"}, {Listeners: mesh.ListenersSocket, Zone: "b", Node: "n"}}
		readers := make([]*snapshot.Reader, len(keys))
		history := make([][]seen, len(keys)) // view → generation → what it saw
		for i, key := range keys {
			readers[i] = s.Open(key, nil)
			history[i] = []seen{{}}
		}
		truth := map[string]mesh.Resource{}
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			u := drawUpdate(t, truth)
			before := s.Snapshot()
			if snap, changed := s.Publish(u, at); changed != (snap.Generation() == before.Generation()+1) || !changed && snap != before {
				t.Fatalf("generation %d to %d, changed %v", before.Generation(), snap.Generation(), changed)
			} else if !changed {
				continue
			}
			for i, r := range readers {
				history[i] = append(history[i], look(t, r.View(), keys[i], truth))
				compare(t, r.View(), history[i], limit)
			}
		}
	})
}

func drawUpdate(t *rapid.T, truth map[string]mesh.Resource) mesh.Update {
	var u mesh.Update
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"v", "w", "x", "y", "z"}), 1, 3, rapid.ID).Draw(t, "names")
	for _, name := range names {
		if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
			u.Remove = append(u.Remove, mesh.Removal{ResourceName: mesh.ResourceName{Type: eds, Name: name}})
			delete(truth, name)
			continue
		}
		body := rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "body")
		r := plain(name, body)
		r.For = rapid.SampledFrom([]mesh.ListenerKind{"", "", mesh.ListenersAPI, mesh.ListenersSocket}).Draw(t, "for")
		switch rapid.IntRange(0, 3).Draw(t, "shape") {
		case 0:
			r.ShapedBy, r.Shape = mesh.ByZone, func(v mesh.View) []byte { return []byte(v.Zone + body) }
		case 1:
			r.ShapedBy, r.Shape = mesh.ByZone|mesh.ByNode, func(v mesh.View) []byte { return []byte("1" + v.Node) }
		}
		u.Put = append(u.Put, r)
		truth[name] = r
	}
	return u
}

// look compares a view with the truth, and gives what it sees.
func look(t *rapid.T, v snapshot.View, key mesh.View, truth map[string]mesh.Resource) seen {
	out := seen{}
	for name, r := range truth {
		if r.For != mesh.ListenersAny && r.For != key.Listeners {
			continue
		}
		out[name] = string(r.Body)
		if masked := key.Mask(r.ShapedBy); masked != (mesh.View{}) {
			out[name] = string(r.Shape(masked))
		}
	}
	all := v.All(eds)
	if names := slices.Sorted(maps.Keys(out)); len(all) != len(names) {
		t.Fatalf("view %v sees %d, want %v", key, len(all), names)
	}
	var sum uint64
	for i, b := range all {
		name := b.Name.Value()
		want, ok := out[name]
		if !ok || !bytes.Equal(b.Value(), []byte(want)) || b.Version != mesh.VersionOf([]byte(want)) || b != v.Body(eds, b.Name) {
			t.Fatalf("view %v sees %s = %q, want %q %v", key, name, b.Value(), want, ok)
		}
		if i > 0 && all[i-1].Name.Value() >= name {
			t.Fatalf("All is not sorted at %s", name)
		}
		sum ^= mesh.Sum(b.Name, b.Version)
	}
	if count, total := v.Total(eds); count != len(all) || total != sum {
		t.Fatalf("Total gives %d %x, want %d %x", count, total, len(all), sum)
	}
	return out
}

// compare holds Since against the difference of what was seen then and now.
func compare(t *rapid.T, v snapshot.View, history []seen, limit int) {
	now := history[len(history)-1]
	for g, then := range history {
		compareNamed(t, v, mesh.Generation(g), then, now)
		changes, ok := v.Since(eds, mesh.Generation(g))
		if !ok {
			if limit == 1000 || g == len(history)-1 {
				t.Fatalf("generation %d is too far behind %d", g, len(history)-1)
			}
			continue
		}
		got := map[string]string{}
		for _, c := range changes {
			name := c.Name.Value()
			if _, twice := got[name]; twice {
				t.Fatalf("%s is twice in Since", name)
			}
			was, had := then[name]
			if c.Was != "" != had || had && c.Was != mesh.VersionOf([]byte(was)) {
				t.Fatalf("%s was %q since %d, want %q %v", name, c.Was, g, was, had)
			}
			got[name] = "gone"
			if c.Body != nil {
				got[name] = "is " + string(c.Body.Value())
			}
		}
		want := map[string]string{}
		for name := range then {
			if _, still := now[name]; !still {
				want[name] = "gone"
			}
		}
		for name, is := range now {
			if was, had := then[name]; !had || was != is {
				want[name] = "is " + is
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("since %d: got %v, want %v", g, fmt.Sprint(got), fmt.Sprint(want))
		}
	}
}

// compareNamed: whatever is not as it was, SinceNamed gives, and never twice.
func compareNamed(t *rapid.T, v snapshot.View, g mesh.Generation, then, now seen) {
	var names []mesh.Name
	for _, name := range []string{"v", "w", "x", "y", "z", "never"} {
		names = append(names, mesh.Intern(name))
	}
	got := map[string]bool{}
	for _, c := range v.SinceNamed(eds, g, names) {
		name := c.Name.Value()
		if got[name] {
			t.Fatalf("%s is twice in SinceNamed", name)
		}
		got[name] = true
		if is, there := now[name]; there != (c.Body != nil) || there && string(c.Body.Value()) != is {
			t.Fatalf("SinceNamed gives %s as %v, it is %q", name, c.Body, is)
		}
	}
	for _, n := range names {
		name := n.Value()
		was, had := then[name]
		is, there := now[name]
		if (had != there || was != is) && !got[name] {
			t.Fatalf("%s was %q at %d, is %q, and SinceNamed does not give it", name, was, g, is)
		}
	}
	if int(v.Generation()) == int(g) {
		for name := range got {
			if _, there := now[name]; there {
				t.Fatalf("%s has not changed since %d, and SinceNamed gives it", name, g)
			}
		}
	}
}
