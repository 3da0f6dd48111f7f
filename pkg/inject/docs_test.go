package inject

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmesh/freshmesh/internal/testpage"
)

// TestAnnotationsPage: docs/install.md has each annotation of pods once, and no other.
func TestAnnotationsPage(t *testing.T) {
	table, _ := testpage.Table(t, "install.md", "annotations")
	var got []string
	for _, text := range testpage.Names(table) {
		name, _, _ := strings.Cut(text, ":")
		got = append(got, prefix+name)
	}
	slices.Sort(got)
	if diff := cmp.Diff(known(), got); diff != "" {
		t.Errorf("docs/install.md (-code +page):\n%s", diff)
	}
}
