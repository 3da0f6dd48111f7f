package arch

import (
	"fmt"
	"strings"
)

// graph is the import graph: our package's path below the module → its
// imports by full path, those of test files left out.
type graph map[string][]string

// judge gives one line for each import that breaks a rule, and one for each package without a rule.
func (g graph) judge() []string {
	var broken []string
	for path, imports := range g {
		r, ok := ruleFor(path)
		if !ok {
			broken = append(broken, path+" has no rule: say in test/arch/rules.go what it may import")
			continue
		}
		for _, imported := range imports {
			if reason := r.forbids(path, imported); reason != "" {
				broken = append(broken, fmt.Sprintf("%s imports %s: %s", path, strings.TrimPrefix(imported, module), reason))
			}
		}
	}
	return broken
}

func ruleFor(path string) (rule, bool) {
	for _, r := range rules {
		if within(path, r.path) {
			return r, true
		}
	}
	return rule{}, false
}

// forbids gives the reason why path must not import imported, or "".
func (r rule) forbids(path, imported string) string {
	if ours, ok := strings.CutPrefix(imported, module); ok {
		if within(ours, path+"/...") || withinAny(ours, r.may) || strings.HasSuffix(r.path, "/...") && within(ours, r.path) {
			return ""
		}
		if len(r.may) == 0 {
			return "it may import nothing of ours"
		}
		return "of ours it may import only " + strings.Join(r.may, ", ")
	}
	if r.pure && withinAny(imported, impure) {
		return "it is pure: no I/O, no logger, no clock"
	}
	for _, x := range reserved {
		if withinAny(imported, x.imports) && !withinAny(imported, x.except) && !withinAny(path, x.only) {
			return x.reason
		}
	}
	return ""
}

// within tells whether path is pattern, or is or lies below X where pattern is X/... .
func within(path, pattern string) bool {
	root, tree := strings.CutSuffix(pattern, "/...")
	return path == root || tree && strings.HasPrefix(path, root+"/")
}

func withinAny(path string, patterns []string) bool {
	for _, p := range patterns {
		if within(path, p) {
			return true
		}
	}
	return false
}
