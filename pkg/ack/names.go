package ack

import (
	"slices"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// names is a set of names, sorted by text: a stream may hold a hundred thousand
// of them for days, and a slice takes a quarter of what a map does. A changed
// set may or may not share memory with the one before.
type names []mesh.Name

func (n names) find(name mesh.Name) (int, bool) {
	return slices.BinarySearchFunc(n, name, compareNames)
}

func compareNames(a, b mesh.Name) int {
	if a == b {
		return 0
	}
	return strings.Compare(a.Value(), b.Value())
}

func (n names) has(name mesh.Name) bool {
	_, ok := n.find(name)
	return ok
}

func (n names) with(name mesh.Name) (names, bool) {
	i, ok := n.find(name)
	if ok {
		return n, false
	}
	return slices.Insert(n, i, name), true
}

// withAll adds many, which may be in any order and there already, in one pass:
// each by itself would move all that follow it.
func (n names) withAll(more []mesh.Name) names {
	if len(more) == 0 {
		return n
	}
	all := slices.Concat(n, more)
	slices.SortFunc(all, compareNames)
	return slices.Compact(all)
}

// withoutAll is the opposite of withAll.
func (n names) withoutAll(gone map[mesh.Name]struct{}) names {
	if len(gone) == len(n) {
		return nil
	}
	return slices.DeleteFunc(n, func(name mesh.Name) bool {
		_, ok := gone[name]
		return ok
	})
}

func (n names) without(name mesh.Name) (names, bool) {
	i, ok := n.find(name)
	if !ok {
		return n, false
	}
	if len(n) == 1 {
		return nil, true
	}
	return slices.Delete(n, i, i+1), true
}
