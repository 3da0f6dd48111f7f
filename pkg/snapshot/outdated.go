package snapshot

import "github.com/freshmesh/freshmesh/pkg/mesh"

// CurrentAfter tells whether a version of a resource, as this view saw it, was
// current at some time at or after generation g. False also where the log no
// longer tells: it is never true by mistake. The version "" is none.
func (v View) CurrentAfter(t mesh.Type, name mesh.Name, version mesh.Version, g mesh.Generation) bool {
	if version == "" || version == mesh.VersionUnknown {
		return false
	}
	if v.Generation() >= g && v.Version(t, name) == version {
		return true
	}
	c := v.collection(t)
	if c == nil {
		return false
	}
	for i := len(c.log) - 1; i >= 0 && c.log[i].generation > g; i-- {
		if c.log[i].name == name && c.log[i].before(v.key) == version {
			return true
		}
	}
	return false
}
