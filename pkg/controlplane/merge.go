package controlplane

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/directory"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/static"
)

// merger lays static resources over generated ones: of two that have one name,
// the static one is served, and the other again once that is gone. It is pure;
// the loop owns it.
type merger struct {
	static map[mesh.ResourceName]static.Resource
	// shadowed are the generated resources that a static one hides.
	shadowed map[mesh.ResourceName]mesh.Resource
}

func newMerger() *merger {
	return &merger{static: make(map[mesh.ResourceName]static.Resource), shadowed: make(map[mesh.ResourceName]mesh.Resource)}
}

// generated gives what of a translation's update is to be published.
func (m *merger) generated(u mesh.Update) mesh.Update {
	if len(m.static) == 0 {
		return u
	}
	var out mesh.Update
	for _, r := range u.Put {
		name := mesh.ResourceName{Type: r.Type, Name: r.Name}
		if _, hidden := m.static[name]; hidden {
			m.shadowed[name] = r
			continue
		}
		out.Put = append(out.Put, r)
	}
	for _, r := range u.Remove {
		if _, hidden := m.static[r.ResourceName]; hidden {
			delete(m.shadowed, r.ResourceName)
			continue
		}
		out.Remove = append(out.Remove, r)
	}
	return out
}

// replace takes the static resources as they are now, and gives what is to be
// published. published gives what was, by name.
func (m *merger) replace(next []static.Resource, published func(mesh.ResourceName) (mesh.Resource, bool)) mesh.Update {
	var out mesh.Update
	old := m.static
	m.static = make(map[mesh.ResourceName]static.Resource, len(next))
	for _, r := range next {
		name := mesh.ResourceName{Type: r.Type, Name: r.Name}
		m.static[name] = r
		was, known := old[name]
		if !known {
			if g, ok := published(name); ok {
				m.shadowed[name] = g
			}
		}
		if !known || !bytes.Equal(was.Body, r.Body) {
			out.Put = append(out.Put, r.Resource)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(old), compareResources) {
		if _, still := m.static[name]; still {
			continue
		}
		if g, ok := m.shadowed[name]; ok {
			delete(m.shadowed, name)
			out.Put = append(out.Put, g)
			continue
		}
		out.Remove = append(out.Remove, mesh.Removal{ResourceName: name, Cause: old[name].Cause})
	}
	return out
}

// problems tells of every name that is both static and generated.
func (m *merger) problems() []mesh.Problem {
	out := make([]mesh.Problem, 0, len(m.shadowed))
	for _, name := range slices.SortedFunc(maps.Keys(m.shadowed), compareResources) {
		r := m.static[name]
		out = append(out, mesh.Problem{
			Object: r.Cause.Object.String(), Field: directory.LineField(r.Line),
			Reason: fmt.Sprintf("%s is also made of %s; the static one is served", name, m.shadowed[name].Cause.Object),
		})
	}
	return out
}

func compareResources(a, b mesh.ResourceName) int {
	return cmp.Or(strings.Compare(string(a.Type), string(b.Type)), strings.Compare(a.Name, b.Name))
}
