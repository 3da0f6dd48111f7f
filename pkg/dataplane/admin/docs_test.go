package admin

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPathsPage: docs/dataplane.md has the paths of the admin side, and no others.
func TestPathsPage(t *testing.T) {
	b, err := os.ReadFile("../../../docs/dataplane.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "<!-- paths: tested against the code -->")
	table, _, ok := strings.Cut(table, "<!-- end of paths -->")
	if !ok {
		t.Fatal("docs/dataplane.md has no table of paths")
	}
	var got []string
	for _, row := range regexp.MustCompile(`(?m)^\| (GET|POST) \| ([^|]*) \|`).FindAllStringSubmatch(table, -1) {
		for path := range strings.SplitSeq(row[2], ", ") {
			got = append(got, row[1]+" "+strings.Trim(path, "`"))
		}
	}
	want := []string{"GET /"}
	for _, r := range (Config{Pprof: true}).routes() {
		want = append(want, r.method+" "+r.path)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/dataplane.md (-code +page):\n%s", diff)
	}
}
