package ack

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Many names at once are as many, one at a time.
func TestNamesAllAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr Tracker
		truth := map[mesh.Name]bool{}
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			var list, changed []mesh.Name
			for _, text := range rapid.SliceOf(rapid.StringMatching("[a-f]{1,2}")).Draw(t, "names") {
				list = append(list, mesh.Intern(text))
			}
			on := rapid.Bool().Draw(t, "on")
			for _, name := range list {
				if truth[name] != on {
					changed = append(changed, name)
				}
				truth[name] = on
			}
			got := tr.Remove
			if on {
				got = tr.Add
			}
			if got := got(list...); !slices.Equal(got, changed) {
				t.Fatalf("changed %v, want %v", got, changed)
			}
			var want []mesh.Name
			for name, is := range truth {
				if is {
					want = append(want, name)
				}
			}
			slices.SortFunc(want, compareNames)
			if !slices.Equal(tr.Names(), want) {
				t.Fatalf("%v, want %v", tr.Names(), want)
			}
		}
	})
}
