package config

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPagesOfTheDataPlane: the flags that its pages name exist, and the defaults
// that they give are the code's.
func TestPagesOfTheDataPlane(t *testing.T) {
	c := DefaultDataplane()
	defaults := map[string]string{}
	for _, f := range dataplaneTable(&c).fields {
		defaults[f.name] = strings.Join(f.get(), ",")
	}
	flag, row := regexp.MustCompile("`--([a-z-]+)"), regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| ([^ :]+)")
	rows := 0
	for _, page := range []string{"dataplane.md", "capture.md", "errors.md"} {
		b, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range flag.FindAllStringSubmatch(string(b), -1) {
			if _, ok := defaults[m[1]]; !ok {
				t.Errorf("docs/%s: there is no --%s", page, m[1])
			}
		}
		for _, m := range row.FindAllStringSubmatch(string(b), -1) {
			rows++
			if m[2] != defaults[m[1]] {
				t.Errorf("docs/%s: --%s is %s, not %s", page, m[1], defaults[m[1]], m[2])
			}
		}
	}
	if rows == 0 {
		t.Error("no table of limits")
	}
}
