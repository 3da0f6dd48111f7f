package snapshot

import (
	"sort"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Changed is the generation of the last change of a resource that exists; 0 for one that does not.
func (s *Snapshot) Changed(name mesh.ResourceName) mesh.Generation {
	e := s.types[name.Type].entry(mesh.Intern(name.Name))
	if e == nil {
		return 0
	}
	return e.changed
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
