package controlplane

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/static"
)

func generatedResource(name, body string) mesh.Resource {
	return mesh.Resource{
		Type: mesh.TypeCluster, Name: name, Body: []byte(body),
		Cause: mesh.Cause{Object: mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: name}},
	}
}

func staticResource(name, body string) static.Resource {
	return static.Resource{Line: 3, Resource: mesh.Resource{
		Type: mesh.TypeCluster, Name: name, Body: []byte(body),
		Cause: mesh.Cause{Object: mesh.Key{Kind: mesh.KindFile, Name: "a.yaml"}},
	}}
}

// published is what a store serves, one "name=body" each.
func published(store *snapshot.Store) string {
	var out []string
	for _, b := range store.View(mesh.View{}).All(mesh.TypeCluster) {
		out = append(out, b.Name.Value()+"="+string(b.Value()))
	}
	return strings.Join(out, " ")
}

func TestStaticHidesGenerated(t *testing.T) {
	store, m := snapshot.New(snapshot.Config{}), newMerger()
	step := func(u mesh.Update, want string, problems ...string) {
		t.Helper()
		store.Publish(u, time.Time{})
		if got := published(store); got != want {
			t.Errorf("served %q, want %q", got, want)
		}
		var got []string
		for _, p := range m.problems() {
			got = append(got, p.String())
		}
		if diff := cmp.Diff(problems, got); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
	}
	const clash = "file a.yaml: line 3: cds a is also made of Service default/a; the static one is served"
	put := func(r ...mesh.Resource) mesh.Update { return m.generated(mesh.Update{Put: r}) }
	files := func(r ...static.Resource) mesh.Update { return m.replace(r, store.Snapshot().Resource) }
	remove := func(name string) mesh.Update {
		return m.generated(mesh.Update{Remove: []mesh.Removal{{ResourceName: mesh.ResourceName{Type: mesh.TypeCluster, Name: name}}}})
	}
	step(put(generatedResource("a", "g1"), generatedResource("b", "g1")), "a=g1 b=g1")
	step(files(staticResource("a", "s1")), "a=s1 b=g1", clash)
	step(put(generatedResource("a", "g2")), "a=s1 b=g1", clash)
	step(files(staticResource("a", "s2")), "a=s2 b=g1", clash)
	step(files(), "a=g2 b=g1")
	step(files(staticResource("a", "s1"), staticResource("c", "s1")), "a=s1 b=g1 c=s1", clash)
	step(remove("a"), "a=s1 b=g1 c=s1")
	step(files(staticResource("c", "s1")), "b=g1 c=s1")
}

// TestMergeIsAnOverlay: in any order of events, what is served is the generated
// resources with the static ones laid over them.
func TestMergeIsAnOverlay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store, m := snapshot.New(snapshot.Config{}), newMerger()
		generated, files := map[string]string{}, map[string]string{}
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		for step := range rapid.IntRange(1, 20).Draw(t, "steps") {
			body := fmt.Sprint("v", step)
			n := name.Draw(t, "name")
			switch rapid.IntRange(0, 2).Draw(t, "event") {
			case 0:
				generated[n] = "g" + body
				store.Publish(m.generated(mesh.Update{Put: []mesh.Resource{generatedResource(n, "g"+body)}}), time.Time{})
			case 1:
				if _, ok := generated[n]; !ok {
					continue
				}
				delete(generated, n)
				store.Publish(m.generated(mesh.Update{Remove: []mesh.Removal{{ResourceName: mesh.ResourceName{Type: mesh.TypeCluster, Name: n}}}}), time.Time{})
			case 2:
				if _, ok := files[n]; ok {
					delete(files, n)
				} else {
					files[n] = "s" + body
				}
				var all []static.Resource
				for _, n := range slices.Sorted(maps.Keys(files)) {
					all = append(all, staticResource(n, files[n]))
				}
				store.Publish(m.replace(all, store.Snapshot().Resource), time.Time{})
			}
			want := maps.Clone(generated)
			maps.Copy(want, files)
			var lines []string
			for _, n := range slices.Sorted(maps.Keys(want)) {
				lines = append(lines, n+"="+want[n])
			}
			if got := published(store); got != strings.Join(lines, " ") {
				t.Fatalf("served %q, want %q", got, lines)
			}
			clashes := 0
			for n := range files {
				if _, ok := generated[n]; ok {
					clashes++
				}
			}
			if len(m.problems()) != clashes {
				t.Fatalf("problems %v, want %d", m.problems(), clashes)
			}
		}
	})
}
