package snapshot

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// SinceNamed is Since for some names only, and does not need the log: each name
// whose resource may have changed after generation g is given, in the order of
// names. What was there before is not known then, so Was is "unknown"; a name
// that does not exist now is always given, since its tombstone may be gone.
func (v View) SinceNamed(t mesh.Type, g mesh.Generation, names []mesh.Name) []Change {
	var out []Change
	c := v.collection(t)
	for _, name := range names {
		// The entry counts and not the form: what is hidden and shown again has an old form.
		e := c.entry(name)
		if e != nil && e.changed <= g {
			continue
		}
		change := Change{Name: name, Was: mesh.VersionUnknown, Body: v.Body(t, name), Versions: 1}
		if e != nil {
			change.At = e.changedAt
		} else {
			change.At = c.goneAt(name)
		}
		out = append(out, change)
	}
	return out
}

// goneAt is when a name went, and where its tombstone is gone, or there never
// was one, the newest time that it can have been: nobody is called late on a guess.
func (c *collection) goneAt(name mesh.Name) time.Time {
	if last := c.last(name); last != nil {
		return last.at
	}
	if c == nil || len(c.log) == 0 {
		return time.Time{}
	}
	return c.log[len(c.log)-1].at
}
