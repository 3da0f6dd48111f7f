package scenario

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sections are the titles in the xDS specification that transcripts may cite.
var sections = []string{
	"Resource Types", "Four Variants", "RPC Services and Methods for Each Variant", "Basic Protocol Overview",
	"ACK/NACK and resource type instance version", "ACK and NACK semantics summary", "When to send an update",
	"How the client specifies what resources to return", "Grouping Resources into Responses", "Duplicate Resource Names",
	"Deleting Resources", "Knowing When a Requested Resource Does Not Exist", "Unsubscribing From Resources",
	"Resource updates", "Resource warming", "Eventual consistency considerations", "Incremental xDS",
}

// beyond are the directories whose transcripts are about more than the specification.
var beyond = []string{"audit", "liveness"}

// transcripts gives the path of each, below testdata, and what its first comment says.
func transcripts(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := fs.WalkDir(os.DirFS("testdata"), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join("testdata", path))
		var head strings.Builder
		for line := range strings.Lines(string(text)) {
			comment, ok := strings.CutPrefix(line, "#")
			if !ok {
				break
			}
			head.WriteString(" " + strings.TrimSpace(comment))
		}
		all[path] = head.String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	namedTranscript = regexp.MustCompile("`([a-z]+/[a-z_]+)`")
	namedTest       = regexp.MustCompile("`((?:pkg|test|internal)/[a-z/]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`")
	quoted          = regexp.MustCompile(`"([^"]+)"`)
)

// TestDocumentation: docs/xds.md names every transcript and no other, and
// every test that it names is there.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/xds.md")
	if err != nil {
		t.Fatal(err)
	}
	all, named := transcripts(t), make(map[string]bool)
	for _, m := range namedTranscript.FindAllStringSubmatch(string(page), -1) {
		named[m[1]] = true
		if _, ok := all[m[1]]; !ok {
			t.Errorf("docs/xds.md names the transcript %s, which does not exist", m[1])
		}
	}
	for path := range all {
		if !named[path] {
			t.Errorf("docs/xds.md does not name the transcript %s", path)
		}
	}
	tests := namedTest.FindAllStringSubmatch(string(page), -1)
	if len(tests) < 10 {
		t.Errorf("docs/xds.md names only %d tests", len(tests))
	}
	for _, m := range tests {
		if !declares(t, m[1], m[2]) {
			t.Errorf("docs/xds.md names %s.%s, which does not exist", m[1], m[2])
		}
	}
}

// declares tells whether a package's tests have a function of that name.
func declares(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}

// TestCitations: each transcript about the protocol cites the section that its
// rule comes from, by its title.
func TestCitations(t *testing.T) {
	for path, head := range transcripts(t) {
		if slices.Contains(beyond, filepath.Dir(path)) {
			continue
		}
		cited := false
		for _, m := range quoted.FindAllStringSubmatch(head, -1) {
			cited = cited || slices.Contains(sections, m[1])
		}
		if !cited {
			t.Errorf("%s cites no section of the xDS specification: %s", path, head)
		}
	}
}
