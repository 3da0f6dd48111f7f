package snapshot

import (
	"hash/maphash"
	"iter"
	"sort"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Snapshot is all resources at one generation. Immutable.
type Snapshot struct {
	generation mesh.Generation
	types      map[mesh.Type]*collection
}

// Generation counts the changes up to this snapshot.
func (s *Snapshot) Generation() mesh.Generation { return s.generation }

// Resource gives a resource as it was published, and false where there is none.
func (s *Snapshot) Resource(name mesh.ResourceName) (mesh.Resource, bool) {
	e := s.types[name.Type].entry(mesh.Intern(name.Name))
	if e == nil {
		return mesh.Resource{}, false
	}
	return e.res, true
}

// Form gives the version of a resource, as a view sees it that says nothing of
// itself, and the generation of the last change of any form; "" and 0 for one that does not exist.
func (s *Snapshot) Form(name mesh.ResourceName) (mesh.Version, mesh.Generation) {
	e := s.types[name.Type].entry(mesh.Intern(name.Name))
	if e == nil {
		return "", 0
	}
	return e.base.Version, e.changed
}

const shards = 256

var shardSeed = maphash.MakeSeed()

func shardOf(name mesh.Name) int {
	return int(maphash.Comparable(shardSeed, name) % shards)
}

// collection is all resources of one type. It is spread over shards so that a
// publish copies one small map and an array of pointers, not every name.
type collection struct {
	shards [shards]map[mesh.Name]*entry
	count  int
	// log: changes in order of generation. Successive collections share the
	// backing array; none looks beyond its own length.
	log []change
	// floor: changes up to this generation are no longer in the log.
	floor mesh.Generation
}

// change is one line of the log.
type change struct {
	generation mesh.Generation
	name       mesh.Name
	// was, wasShapes: the versions before; "" where the resource was new.
	was       mesh.Version
	wasShapes map[mesh.View]mesh.Version
	// shapedBy, seenBy: what of the resource before depended on the view.
	shapedBy mesh.ViewFields
	seenBy   mesh.ListenerKind
	// static: the resource before was static, and seen instead of a node's own.
	static bool
	at     time.Time
	cause  mesh.Cause
}

// from notes what the resource was before.
func (c *change) from(e *entry) {
	c.was, c.wasShapes = e.base.Version, e.versions()
	c.shapedBy, c.seenBy, c.static = e.res.ShapedBy, e.res.For, e.res.Static
}

// before gives the version that a view saw before the change.
func (c *change) before(v mesh.View) mesh.Version {
	if c.was == "" || c.seenBy != mesh.ListenersAny && c.seenBy != v.Listeners {
		return ""
	}
	if key := v.Mask(c.shapedBy); key != (mesh.View{}) {
		if version, ok := c.wasShapes[key]; ok {
			return version
		}
		// Nobody had asked for this form when it went, but a reader may have made it
		// later, from an older snapshot.
		return mesh.VersionUnknown
	}
	return c.was
}

func (c *collection) entry(name mesh.Name) *entry {
	if c == nil {
		return nil
	}
	return c.shards[shardOf(name)][name]
}

func (c *collection) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if c == nil {
			return
		}
		for _, shard := range &c.shards {
			for _, e := range shard {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// since gives the log after a generation; false when it no longer reaches that far back.
func (c *collection) since(g mesh.Generation) ([]change, bool) {
	if c == nil {
		return nil, true
	}
	if g < c.floor {
		return nil, false
	}
	i := sort.Search(len(c.log), func(i int) bool { return c.log[i].generation > g })
	return c.log[i:], true
}

// last gives the newest line of the log about a name, or nil.
func (c *collection) last(name mesh.Name) *change {
	if c == nil {
		return nil
	}
	for i := len(c.log) - 1; i >= 0; i-- {
		if c.log[i].name == name {
			return &c.log[i]
		}
	}
	return nil
}
