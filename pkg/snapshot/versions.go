package snapshot

import (
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Digest sums up the resources of one type, as nodes see them that say nothing of
// themselves: two stores with equal digests hold the same.
type Digest struct {
	Type      mesh.Type
	Resources int
	Version   mesh.Version
	// ChangedAt is the last change; zero where the log tells of none.
	ChangedAt time.Time
}

// Digests gives one for each type that has or had resources, sorted by type. It costs a look at each resource.
func (s *Snapshot) Digests() []Digest {
	out := make([]Digest, 0, len(s.types))
	for t, c := range s.types {
		d := Digest{Type: t, Resources: c.count}
		var sum uint64
		for e := range c.all() {
			sum ^= e.base.Sum
		}
		d.Version = mesh.SumVersion(sum)
		if n := len(c.log); n > 0 {
			d.ChangedAt = c.log[n-1].at
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Digest) int { return strings.Compare(string(a.Type), string(b.Type)) })
	return out
}

// Versions is the version of one resource, and those that it had.
type Versions struct {
	Name string
	// Version is "" for one that is gone.
	Version   mesh.Version
	ChangedAt time.Time
	// Past are the versions before, newest first, at most 16 of them.
	Past []Past
}

// Past is a version that was replaced; "" where there was no resource.
type Past struct {
	Version mesh.Version
	Until   time.Time
}

const maxPast = 16

// Versions gives all resources of a type that exist or are in the log, sorted by name.
func (s *Snapshot) Versions(t mesh.Type) []Versions {
	c := s.types[t]
	if c == nil {
		return nil
	}
	byName := make(map[mesh.Name]*Versions, c.count)
	for e := range c.all() {
		byName[e.name] = &Versions{Name: e.name.Value(), Version: e.base.Version, ChangedAt: e.changedAt}
	}
	for _, line := range slices.Backward(c.log) {
		v := byName[line.name]
		if v == nil {
			v = &Versions{Name: line.name.Value(), ChangedAt: line.at}
			byName[line.name] = v
		}
		if len(v.Past) < maxPast {
			v.Past = append(v.Past, Past{Version: line.was, Until: line.at})
		}
	}
	out := make([]Versions, 0, len(byName))
	for _, v := range byName {
		out = append(out, *v)
	}
	slices.SortFunc(out, func(a, b Versions) int { return strings.Compare(a.Name, b.Name) })
	return out
}
