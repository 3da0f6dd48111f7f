package snapshot

import (
	"iter"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// View is what nodes of one kind see of one snapshot, with the resources that
// belong to one node alone. Immutable; the zero View is empty.
type View struct {
	snap *Snapshot
	key  mesh.View
	own  Own
}

// Own are resources that one node has beside those of the store (its socket
// listeners), by type and name; they win over the store's, but for static ones.
// Never changed once in a View.
type Own map[mesh.Type]map[mesh.Name]*Body

// NewOwn makes an Own.
func NewOwn(resources []mesh.Resource) Own {
	own := make(Own)
	for _, r := range resources {
		if own[r.Type] == nil {
			own[r.Type] = make(map[mesh.Name]*Body)
		}
		name := mesh.Intern(r.Name)
		own[r.Type][name] = newBody(r.Type, name, r.Body, 0)
	}
	return own
}

// Generation is the snapshot's.
func (v View) Generation() mesh.Generation {
	if v.snap == nil {
		return 0
	}
	return v.snap.generation
}

// Namespace is that of the nodes that see this view; "" where they name none.
func (v View) Namespace() string { return v.key.Namespace }

func (v View) collection(t mesh.Type) *collection {
	if v.snap == nil {
		return nil
	}
	return v.snap.types[t]
}

// Body gives the resource's form for this view, or nil.
func (v View) Body(t mesh.Type, name mesh.Name) *Body {
	if b := v.mine(t, name); b != nil {
		return b
	}
	e := v.collection(t).entry(name)
	if e == nil || !e.visible(v.key) {
		return nil
	}
	return e.body(v.key)
}

// mine gives the node's own resource, or nil where it has none or a static one
// is seen instead.
func (v View) mine(t mesh.Type, name mesh.Name) *Body {
	b := v.own[t][name]
	if b == nil {
		return nil
	}
	if e := v.collection(t).entry(name); e != nil && e.res.Static && e.visible(v.key) {
		return nil
	}
	return b
}

// Version gives the version of the resource's form for this view; "" when there is none.
func (v View) Version(t mesh.Type, name mesh.Name) mesh.Version {
	if b := v.Body(t, name); b != nil {
		return b.Version
	}
	return ""
}

// Sum gives the mesh.Sum of the resource's form for this view; 0 when there is none.
func (v View) Sum(t mesh.Type, name mesh.Name) uint64 {
	if b := v.Body(t, name); b != nil {
		return b.Sum
	}
	return 0
}

// Total gives how many resources of a type the view sees, and the XOR of their Sums.
func (v View) Total(t mesh.Type) (count int, sum uint64) {
	for b := range v.bodies(t) {
		count++
		sum ^= b.Sum
	}
	return count, sum
}

// All gives every resource of a type that the view sees, sorted by name.
func (v View) All(t mesh.Type) []*Body {
	all := slices.Collect(v.bodies(t))
	slices.SortFunc(all, func(a, b *Body) int { return strings.Compare(a.Name.Value(), b.Name.Value()) })
	return all
}

func (v View) bodies(t mesh.Type) iter.Seq[*Body] {
	return func(yield func(*Body) bool) {
		for name := range v.own[t] {
			if b := v.mine(t, name); b != nil && !yield(b) {
				return
			}
		}
		for e := range v.collection(t).all() {
			if v.mine(t, e.name) != nil || !e.visible(v.key) {
				continue
			}
			if !yield(e.body(v.key)) {
				return
			}
		}
	}
}

// FollowedBy names what a client needs again after this resource changed.
func (v View) FollowedBy(t mesh.Type, name mesh.Name) []mesh.ResourceName {
	if e := v.collection(t).entry(name); e != nil {
		return e.res.FollowedBy
	}
	return nil
}

// Change is one resource that is not as it was.
type Change struct {
	Name mesh.Name
	// Was is the version at the generation asked from; "" when there was none,
	// and "unknown" when there was one that nobody had asked for at the time.
	Was mesh.Version
	// Body is the form now; nil when there is none.
	Body *Body
	// At is when the form before went out of date.
	At time.Time
	// Versions counts the changes of the resource that this one sums up, at least 1;
	// some of them may not have changed this view's form.
	Versions int
}

// Since gives what differs from an earlier generation, each name once, in the
// order in which they first changed; what changed and changed back is left
// out. It gives false when the log no longer reaches back to that generation.
func (v View) Since(t mesh.Type, g mesh.Generation) ([]Change, bool) {
	log, ok := v.collection(t).since(g)
	if !ok || len(log) == 0 {
		return nil, ok
	}
	out := make([]Change, 0, len(log))
	seen := make(map[mesh.Name]int, len(log)) // name → its place in out, -1 for none
	for i := range log {
		c := &log[i]
		if at, dup := seen[c.name]; dup {
			if at >= 0 {
				out[at].Versions++
			}
			continue
		}
		seen[c.name] = -1
		body, was := v.Body(t, c.name), c.before(v.key)
		if own := v.own[t][c.name]; own != nil && (!c.static || was == "") {
			was = own.Version
		}
		if same(body, was) {
			continue
		}
		seen[c.name] = len(out)
		out = append(out, Change{Name: c.name, Was: was, Body: body, At: c.at, Versions: 1})
	}
	return out, true
}

func same(b *Body, was mesh.Version) bool {
	if b == nil {
		return was == ""
	}
	return b.Version == was
}

// Cause tells when and by which object the resource got its present form, or
// was removed; false when nothing is known of it.
func (v View) Cause(t mesh.Type, name mesh.Name) (time.Time, mesh.Cause, bool) {
	c := v.collection(t)
	if e := c.entry(name); e != nil {
		return e.changedAt, e.res.Cause, true
	}
	if last := c.last(name); last != nil {
		return last.at, last.cause, true
	}
	return time.Time{}, mesh.Cause{}, false
}

// CauseSince is Cause for a resource that is known to have changed at a time or
// later: of a removed one, only the log from there on is looked at.
func (v View) CauseSince(t mesh.Type, name mesh.Name, since time.Time) (time.Time, mesh.Cause, bool) {
	c := v.collection(t)
	if e := c.entry(name); e != nil {
		return e.changedAt, e.res.Cause, true
	}
	if c == nil {
		return time.Time{}, mesh.Cause{}, false
	}
	first := sort.Search(len(c.log), func(i int) bool { return !c.log[i].at.Before(since) })
	for i := len(c.log) - 1; i >= first; i-- {
		if c.log[i].name == name {
			return c.log[i].at, c.log[i].cause, true
		}
	}
	return time.Time{}, mesh.Cause{}, false
}
