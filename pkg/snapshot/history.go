package snapshot

import (
	"sort"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Form gives the version of a resource, as a view sees it that says nothing of
// itself, and the generation of the last change of any form; "" and 0 for one that does not exist.
func (s *Snapshot) Form(name mesh.ResourceName) (mesh.Version, mesh.Generation) {
	e := s.types[name.Type].entry(mesh.Intern(name.Name))
	if e == nil {
		return "", 0
	}
	return e.base.Version, e.changed
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

// Namespace is that of the nodes that see this view; "" where they name none.
func (v View) Namespace() string { return v.key.Namespace }
