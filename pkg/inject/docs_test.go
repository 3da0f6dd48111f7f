package inject

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAnnotationsPage: docs/install.md has each annotation of pods once, and no other.
func TestAnnotationsPage(t *testing.T) {
	b, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "\nAnnotations of a pod")
	_, table, ok := strings.Cut(table, "|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	if !ok {
		t.Fatal("docs/install.md has no table of annotations")
	}
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z][^|]*) \\|").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([a-z-]+)").FindAllStringSubmatch(row[1], -1) {
			got = append(got, prefix+name[1])
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(known(), got); diff != "" {
		t.Errorf("docs/install.md (-code +page):\n%s", diff)
	}
}
