package translate

import (
	"slices"
	"strconv"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// group is what the assignments of one service port are made of. Immutable:
// Shape functions hold it.
type group struct {
	name string
	// local is internalTrafficPolicy Local.
	local bool
	// families are the IPv4 and the IPv6 endpoints, sorted.
	families [2][]endpoint
}

// placed is an endpoint as one view sees it.
type placed struct {
	*endpoint
	draining bool
	// family is 0 for IPv4, 1 for IPv6.
	family int
}

// newGroup takes endpoints as collect sorts them.
func newGroup(name string, local bool, endpoints []endpoint) *group {
	six := slices.IndexFunc(endpoints, func(e endpoint) bool { return !e.addr.Addr().Is4() })
	if six < 0 {
		six = len(endpoints)
	}
	return &group{name: name, local: local, families: [2][]endpoint{endpoints[:six], endpoints[six:]}}
}

// place gives the endpoints that a view sees, IPv4 first, in the order of collect.
func (g *group) place(v mesh.View) []placed {
	out := make([]placed, 0, len(g.families[0])+len(g.families[1]))
	for i, family := range g.families {
		pick := picker(family, g.local, v)
		anyReady := slices.ContainsFunc(family, func(e endpoint) bool { return e.ready && pick(&e) })
		for j := range family {
			if e := &family[j]; pick(e) {
				out = append(out, placed{endpoint: e, draining: !e.ready && (anyReady || e.drained), family: i})
			}
		}
	}
	return out
}

// picker says which endpoints of a family a view uses, by the rules of
// kube-proxy's CategorizeEndpoints. Local traffic stays on the node, even if
// nothing is there. Otherwise hints count if every ready endpoint has one and
// one of them is for this node, or else for this zone.
func picker(family []endpoint, local bool, v mesh.View) func(*endpoint) bool {
	if local && v.Node != "" {
		return func(e *endpoint) bool { return e.node == v.Node }
	}
	if !local && hinted(family, byNode, v.Node) {
		return func(e *endpoint) bool { return !e.ready || slices.Contains(e.forNodes, v.Node) }
	}
	if !local && hinted(family, byZone, v.Zone) {
		return func(e *endpoint) bool { return !e.ready || slices.Contains(e.forZones, v.Zone) }
	}
	return func(*endpoint) bool { return true }
}

func byNode(e *endpoint) []string { return e.forNodes }
func byZone(e *endpoint) []string { return e.forZones }

// hinted tells whether every ready endpoint has hints and one of them is for name.
func hinted(family []endpoint, hints func(*endpoint) []string, name string) bool {
	return name != "" && allHinted(family, hints) &&
		slices.ContainsFunc(family, func(e endpoint) bool { return e.ready && slices.Contains(hints(&e), name) })
}

// allHinted tells whether there are ready endpoints and every one has hints.
func allHinted(family []endpoint, hints func(*endpoint) []string) bool {
	ready := false
	for i := range family {
		if e := &family[i]; e.ready {
			if len(hints(e)) == 0 {
				return false
			}
			ready = true
		}
	}
	return ready
}

// shapedBy says which fields of a view change what place gives.
func (g *group) shapedBy() mesh.ViewFields {
	var fields mesh.ViewFields
	for _, family := range g.families {
		switch {
		case g.local && len(family) > 0:
			fields |= mesh.ByNode
		case g.local:
		default:
			if allHinted(family, byNode) {
				fields |= mesh.ByNode
			}
			if allHinted(family, byZone) {
				fields |= mesh.ByZone
			}
		}
	}
	return fields
}

// shaping writes down all that the shapes depend on beyond the body.
func (g *group) shaping() string {
	var b []byte
	for _, family := range g.families {
		for i := range family {
			e := &family[i]
			b = strconv.AppendQuote(b, e.node)
			b = strconv.AppendBool(b, e.drained)
			for _, list := range [][]string{e.forZones, e.forNodes} {
				b = append(b, '[')
				for _, name := range list {
					b = strconv.AppendQuote(b, name)
				}
				b = append(b, ']')
			}
		}
	}
	return strconv.FormatBool(g.local) + string(b)
}
