package admin

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmesh/freshmesh/internal/testpage"
)

// TestPathsPage: docs/dataplane.md has the paths of the admin side, and no others.
func TestPathsPage(t *testing.T) {
	table, _ := testpage.Table(t, "dataplane.md", "paths")
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
