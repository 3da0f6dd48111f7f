package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmesh/freshmesh/internal/testpage"
)

// named gives what a pattern's first group finds in the code of the current pages: name → the pages.
func named(t *testing.T, pattern string) map[string][]string {
	t.Helper()
	re, out := regexp.MustCompile(pattern), make(map[string][]string)
	for _, page := range current(t) {
		for _, piece := range code(read(t, page)) {
			for _, m := range re.FindAllStringSubmatch(piece, -1) {
				out[m[1]] = append(out[m[1]], page)
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("no page has %s", pattern)
	}
	return out
}

// foreign are flags that the pages name and that are not those of our two programs.
var foreign = map[string]string{
	"config-path": "envoy", "disable-hot-restart": "envoy", "http2": "curl", "http2-prior-knowledge": "curl",
	"set": "helm", "ignore-not-found": "kubectl", "help": "any", "quiet": "pip",
	"configs":  "make run",
	"workload": "test/bench/dataplane", "contenders": "test/bench/dataplane", "rounds": "test/bench/dataplane",
	"duration": "test/bench/dataplane", "profile": "test/bench/dataplane", "json": "test/bench/dataplane",
}

// TestFlags: a flag that a page names exists. docs/settings.md and docs/commands.md
// have all, which is tested where they are written.
func TestFlags(t *testing.T) {
	flag := regexp.MustCompile(`--([a-z][a-z-]*[a-z0-9])`)
	known := make(map[string]bool)
	for _, page := range []string{"docs/settings.md", "docs/commands.md"} {
		for line := range strings.Lines(read(t, page)) {
			if row := strings.TrimLeft(line, " |`"); strings.HasPrefix(row, "-") {
				for _, m := range flag.FindAllStringSubmatch(row, 2) { // -o, --output
					known[m[1]] = true
					break
				}
			}
		}
	}
	for name, where := range named(t, `(?:^|[^\w-])--([a-z][a-z0-9-]*[a-z0-9])`) {
		if !known[name] && foreign[name] == "" {
			t.Errorf("%s: there is no --%s", where, name)
		}
	}
}

// TestAnnotations: an annotation or label of ours that a page names is in the tables of docs/dataplane.md or docs/install.md.
func TestAnnotations(t *testing.T) {
	known := map[string]bool{
		"hello":   true, // what a data plane asks for at the start of its stream
		"observe": true, // a label of namespaces, docs/install.md
		"KEY":     true,
	}
	for _, page := range []string{"dataplane.md", "install.md"} {
		table, _ := testpage.Table(t, page, "annotations")
		for _, text := range testpage.Names(table) {
			name, _, _ := strings.Cut(text, ":")
			known[name] = true
		}
	}
	for name, where := range named(t, `freshmesh\.dev/([a-zA-Z-]*[a-zA-Z])`) {
		if !known[name] {
			t.Errorf("%s: there is no freshmesh.dev/%s", where, name)
		}
	}
}

// TestTargets: a target of make that a page names exists.
func TestTargets(t *testing.T) {
	known := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		known[m[1]] = true
	}
	for name, where := range named(t, `(?m)(?:^|  )make ([a-z][a-z0-9-]*)`) {
		if !known[name] {
			t.Errorf("%s: there is no target %s", where, name)
		}
	}
}

// TestTests: a test that a page names exists, under whatever heading.
func TestTests(t *testing.T) {
	known, function := make(map[string]bool), regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	for _, file := range files(t) {
		if strings.HasSuffix(file, "_test.go") {
			for _, m := range function.FindAllStringSubmatch(read(t, file), -1) {
				known[m[1]] = true
			}
		}
	}
	for name, where := range named(t, `\b((?:Test|Fuzz|Benchmark)[A-Z]\w+)`) {
		if !known[name] {
			t.Errorf("%s: there is no %s", where, name)
		}
	}
}

// TestPaths: a file or directory of the repository that a page names is there.
func TestPaths(t *testing.T) {
	for name, where := range named(t, `(?:^|[\s(=]|\./)((?:cmd|pkg|internal|test|configs|docs|tools)/[\w./-]*\w)`) {
		name, _, _ = strings.Cut(name, ".Test")
		name, _, _ = strings.Cut(name, ".Fuzz")
		name = strings.TrimSuffix(name, "/...")
		if found, err := filepath.Glob(filepath.Join(root, name)); err != nil || len(found) == 0 {
			t.Errorf("%s: there is no %s", where, name)
		}
	}
}

// TestArchitecture: docs/ARCHITECTURE.md names each package at the first level, and each part of the data plane.
func TestArchitecture(t *testing.T) {
	page := read(t, "docs/ARCHITECTURE.md")
	for _, pattern := range []string{"cmd/*", "pkg/*", "internal/*", "pkg/dataplane/*"} {
		packages, err := filepath.Glob(filepath.Join(root, pattern, "doc.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range packages {
			name := filepath.Base(filepath.Dir(file))
			if !regexp.MustCompile(`\b` + name + `\b`).MatchString(page) {
				t.Errorf("docs/ARCHITECTURE.md does not name %s", filepath.Dir(file))
			}
		}
	}
}

// TestNodeMetadata: docs/xds.md has the fields of a node's metadata that the server reads, and no others.
func TestNodeMetadata(t *testing.T) {
	field := func(text, pattern string) []string {
		var out []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	want := field(read(t, "pkg/xds/node.go"), `fields\["(\w+)"\]`)
	if diff := cmp.Diff(want, field(read(t, "docs/xds.md"), "(?m)^\\| `metadata\\.(\\w+)`")); len(want) == 0 || diff != "" {
		t.Errorf("docs/xds.md (-code +page):\n%s", diff)
	}
}

// TestAdminPaths: README.md has the paths of xds-server's admin side.
func TestAdminPaths(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "README.md"), "\n## Looking inside\n")
	table, _, _ = strings.Cut(table, "\n## ")
	paths := regexp.MustCompile(`mux\.Handle\("(/[a-z]+)"`).FindAllStringSubmatch(read(t, "pkg/admin/server.go"), -1)
	for _, m := range paths {
		if !regexp.MustCompile("[`/ ]" + regexp.QuoteMeta(m[1]) + "[`?\\[]").MatchString(table) {
			t.Errorf("README.md, Looking inside, lacks %s", m[1])
		}
	}
	if len(paths) < 5 {
		t.Errorf("only %d paths found", len(paths))
	}
}

// TestPagesThatCodeNames: what a comment, a message or a manifest refers to is there.
func TestPagesThatCodeNames(t *testing.T) {
	page := regexp.MustCompile(`\bdocs/([a-zA-Z0-9-]+\.md|design/\d{4}[\w.-]*)`)
	n := 0
	for _, file := range files(t) {
		if !slices.Contains([]string{".go", ".yaml", ".proto", ".txt"}, filepath.Ext(file)) && file != "Makefile" {
			continue
		}
		for _, m := range page.FindAllString(read(t, file), -1) {
			n++
			if found, err := filepath.Glob(filepath.Join(root, strings.TrimRight(m, ".")+"*")); err != nil || len(found) == 0 {
				t.Errorf("%s: there is no %s", file, m)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d references found", n)
	}
}
