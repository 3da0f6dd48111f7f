package snapshot

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// TestStaticWinsOverOwn: a node sees its own resource, but a static one of the
// name instead while there is one, and hears of each change.
func TestStaticWinsOverOwn(t *testing.T) {
	store := New(Config{})
	res := func(body string, static bool) mesh.Resource {
		return mesh.Resource{Type: mesh.TypeListener, Name: "l", Body: []byte(body), Static: static}
	}
	own := NewOwn([]mesh.Resource{res("own", false)})
	reader := store.Open(mesh.View{}, own)
	defer reader.Close()
	name := mesh.Intern("l")
	step := func(what string, u mesh.Update, want string, changes int) {
		t.Helper()
		before := reader.View().Generation()
		store.Publish(u, time.Unix(1, 0))
		v := reader.View()
		if got := string(v.Body(mesh.TypeListener, name).Value()); got != want {
			t.Errorf("%s: sees %q, want %q", what, got, want)
		}
		if all := v.All(mesh.TypeListener); len(all) != 1 || string(all[0].Value()) != want {
			t.Errorf("%s: all are %v", what, all)
		}
		if since, ok := v.Since(mesh.TypeListener, before); !ok || len(since) != changes {
			t.Errorf("%s: changes %+v, want %d", what, since, changes)
		}
		if since, ok := v.Since(mesh.TypeListener, 0); !ok || want == "own" && len(since) != 0 {
			t.Errorf("%s: since the beginning %+v", what, since)
		}
	}
	put := func(r mesh.Resource) mesh.Update { return mesh.Update{Put: []mesh.Resource{r}} }
	remove := mesh.Update{Remove: []mesh.Removal{{ResourceName: mesh.ResourceName{Type: mesh.TypeListener, Name: "l"}}}}
	step("shared", put(res("shared", false)), "own", 0)
	step("static", put(res("static", true)), "static", 1)
	step("static changes", put(res("static 2", true)), "static 2", 1)
	step("static goes", put(res("shared", false)), "own", 1)
	step("same bytes, static", put(res("shared", true)), "shared", 1)
	step("all goes", remove, "own", 1)
}
