package ads_test

import (
	"fmt"
	"maps"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

const unknownType mesh.Type = "type.googleapis.com/example.Unknown"

var (
	allTypes = [...]mesh.Type{mesh.TypeCluster, mesh.TypeEndpoint, mesh.TypeListener, mesh.TypeRoute, unknownType}
	allNames = [...]string{"A", "B", "C", "D", "E"}
)

// truth is what the store should hold, kept naively: every resource at every generation.
type truth struct {
	store *snapshot.Store
	now   map[mesh.ResourceName]mesh.Resource
	// at: generation → everything that existed then.
	at map[mesh.Generation]map[mesh.ResourceName]mesh.Resource
	// ever: type → names that ever existed.
	ever map[mesh.Type]map[string]bool
}

func newTruth(c snapshot.Config) *truth {
	tr := &truth{
		store: snapshot.New(c), now: map[mesh.ResourceName]mesh.Resource{},
		at: map[mesh.Generation]map[mesh.ResourceName]mesh.Resource{}, ever: map[mesh.Type]map[string]bool{},
	}
	tr.at[0] = map[mesh.ResourceName]mesh.Resource{}
	return tr
}

func (tr *truth) publish(u mesh.Update, at time.Time) {
	for _, r := range u.Put {
		tr.now[mesh.ResourceName{Type: r.Type, Name: r.Name}] = r
		if tr.ever[r.Type] == nil {
			tr.ever[r.Type] = map[string]bool{}
		}
		tr.ever[r.Type][r.Name] = true
	}
	for _, r := range u.Remove {
		delete(tr.now, r.ResourceName)
	}
	snap, _ := tr.store.Publish(u, at)
	tr.at[snap.Generation()] = maps.Clone(tr.now)
}

// version is what a view sees of a resource at a generation.
func (tr *truth) version(g mesh.Generation, key mesh.View, own map[mesh.ResourceName]mesh.Resource, n mesh.ResourceName) mesh.Version {
	if r, ok := own[n]; ok {
		return mesh.VersionOf(r.Body)
	}
	r, ok := tr.at[g][n]
	if !ok || r.For != mesh.ListenersAny && r.For != key.Listeners {
		return ""
	}
	if masked := key.Mask(r.ShapedBy); r.Shape != nil && masked != (mesh.View{}) {
		return mesh.VersionOf(r.Shape(masked))
	}
	return mesh.VersionOf(r.Body)
}

// resource makes one of a few kinds: plain, shaped, or for one audience.
func resource(t mesh.Type, name string, label, kind int) mesh.Resource {
	body := func(label int, by string) []byte { return fmt.Appendf(nil, "%s=%d%s", name, label, by) }
	r := mesh.Resource{Type: t, Name: name, Body: body(label, "")}
	switch kind {
	case 1: // every label gives zone a another form
		r.ShapedBy, r.Shape = mesh.ByZone, func(v mesh.View) []byte { return body(label, v.Zone) }
	case 2: // zone a has one form, whatever the label, and it is another kind's base
		r.ShapedBy, r.Shape = mesh.ByZone|mesh.ByNode, func(mesh.View) []byte { return body(0, "") }
	case 3:
		r.For = mesh.ListenersSocket
	case 4:
		r.For = mesh.ListenersAPI
	}
	switch {
	case t == mesh.TypeCluster && name < "D":
		r.FollowedBy = []mesh.ResourceName{{Type: mesh.TypeEndpoint, Name: name}}
	case t == mesh.TypeCluster:
		r.FollowedBy = []mesh.ResourceName{{Type: mesh.TypeEndpoint, Name: "shared"}, {Type: mesh.TypeEndpoint, Name: "A"}}
	}
	return r
}
