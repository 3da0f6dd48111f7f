package snapshot

import (
	"cmp"
	"slices"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// interest is who subscribes to one type. Store.mu guards it.
type interest struct {
	all    readers
	byName map[mesh.Name]readers
}

// readers are sorted by id. A slice takes a quarter of what a map does, and a
// mesh has as many entries as nodes times names.
type readers []*Reader

func (s readers) find(r *Reader) (int, bool) {
	return slices.BinarySearchFunc(s, r, func(a, b *Reader) int { return cmp.Compare(a.id, b.id) })
}

func (s readers) with(r *Reader) readers {
	i, ok := s.find(r)
	if ok {
		return s
	}
	return slices.Insert(s, i, r)
}

func (s readers) without(r *Reader) readers {
	i, ok := s.find(r)
	if !ok {
		return s
	}
	return slices.Delete(s, i, i+1)
}

func (in *interest) add(name mesh.Name, r *Reader) { in.byName[name] = in.byName[name].with(r) }

func (in *interest) drop(name mesh.Name, r *Reader) {
	if rest := in.byName[name].without(r); len(rest) > 0 {
		in.byName[name] = rest
	} else {
		delete(in.byName, name)
	}
}

func (in *interest) empty() bool { return len(in.all) == 0 && len(in.byName) == 0 }
