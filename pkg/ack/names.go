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

// with adds names that are not there, in any order: one pass over the set, since
// each by itself would move all that follow it.
func (n names) with(more []mesh.Name) names {
	more = slices.SortedFunc(slices.Values(more), compareNames)
	end := len(n) // of what stays where it is, or has not moved yet
	n = append(n, more...)
	for k := len(more); k > 0; k-- {
		at, _ := n[:end].find(more[k-1])
		copy(n[at+k:], n[at:end])
		n[at+k-1] = more[k-1]
		end = at
	}
	return n
}

// without is the opposite of with: gone are all there.
func (n names) without(gone map[mesh.Name]struct{}) names {
	if len(gone) == len(n) {
		return nil
	}
	return slices.DeleteFunc(n, func(name mesh.Name) bool {
		_, ok := gone[name]
		return ok
	})
}
