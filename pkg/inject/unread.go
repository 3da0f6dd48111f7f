package inject

import (
	"maps"
	"slices"
	"strings"
)

// known are the annotations of pods that are read, in the order of their names without the prefix.
func known() []string {
	names := []string{Inject, drainTimeout, listen, redirect}
	for _, s := range settings {
		if s.annotation != "" {
			names = append(names, s.annotation)
		}
	}
	for _, s := range skipped {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

// unread names the annotations and labels of ours in a workload that have no
// effect: those of a name that nobody knows, and those that stand on the
// workload and not on its pods, which are at path.
func unread(o map[string]any, path []string) []string {
	var out []string
	at := ""
	if len(path) > 0 {
		at = strings.Join(path, ".") + "."
		for _, what := range []string{"annotations", "labels"} {
			for _, name := range ours(o, what) {
				out = append(out, "metadata."+what+"["+name+"]: without effect here: those of pods stand in "+at+"metadata")
			}
		}
		for _, step := range path {
			o, _ = o[step].(map[string]any)
		}
	}
	for _, name := range ours(o, "annotations") {
		if !slices.Contains(known(), name) {
			out = append(out, at+"metadata.annotations["+name+"]: no such annotation; there are "+strings.ReplaceAll(strings.Join(known(), ", "), prefix, ""))
		}
	}
	for _, name := range ours(o, "labels") {
		if name != Inject {
			out = append(out, at+"metadata.labels["+name+"]: no such label; there is "+strings.TrimPrefix(Inject, prefix))
		}
	}
	return out
}

// ours are the names with our prefix among the annotations or labels of an object, sorted.
func ours(o map[string]any, what string) []string {
	meta, _ := o["metadata"].(map[string]any)
	pairs, _ := meta[what].(map[string]any)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(pairs)), func(name string) bool { return !strings.HasPrefix(name, prefix) })
}
