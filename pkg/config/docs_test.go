package config

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmesh/freshmesh/internal/testpage"
)

var update = flag.Bool("update", false, "write the tables of docs/settings.md")

const settingsPage = "../../docs/settings.md"

// TestSettingsPage holds the tables of docs/settings.md against the code's.
func TestSettingsPage(t *testing.T) {
	b, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	server, dataplane := DefaultServer(), DefaultDataplane()
	page := string(b)
	for name, settings := range map[string]*table{
		"serve": serverTable(&server, nil), "dataplane": dataplaneTable(&dataplane),
	} {
		begin := "<!-- " + name + ": tested against the code -->\n"
		before, rest, ok := strings.Cut(page, begin)
		inside, after, closed := strings.Cut(rest, "<!-- end of "+name+" -->")
		if !ok || !closed {
			t.Fatalf("%s has no table %s", settingsPage, name)
		}
		want := settings.markdown()
		page = before + begin + want + "<!-- end of " + name + " -->" + after
		if diff := cmp.Diff(want, inside); diff != "" && !*update {
			t.Errorf("the table %s of %s (-code +page); -update writes it:\n%s", name, settingsPage, diff)
		}
	}
	if *update {
		if err := os.WriteFile(settingsPage, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// markdown is the settings as the page shows them.
func (t *table) markdown() string {
	escape := strings.NewReplacer("|", `\|`, "<", `\<`)
	var b strings.Builder
	b.WriteString("| Flag | Default | |\n|---|---|---|\n")
	for _, f := range t.fields {
		value := strings.Join(f.get(), ",")
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| `--%s` %s | %s | %s |\n", f.name, escape.Replace(f.kind), value, escape.Replace(f.usage))
	}
	return b.String()
}

// TestPagesOfTheDataPlane: the defaults that its pages give of its flags are the code's.
func TestPagesOfTheDataPlane(t *testing.T) {
	c := DefaultDataplane()
	defaults := map[string]string{}
	for _, f := range dataplaneTable(&c).fields {
		defaults[f.name] = strings.Join(f.get(), ",")
	}
	row := regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| ([^ :]+)")
	rows := row.FindAllStringSubmatch(testpage.Read(t, "dataplane.md"), -1)
	for _, m := range rows {
		if m[2] != defaults[m[1]] {
			t.Errorf("docs/dataplane.md: --%s is %s, not %s", m[1], defaults[m[1]], m[2])
		}
	}
	if len(rows) == 0 {
		t.Error("no table of limits")
	}
}

// TestLimitsOfXDS: the defaults that docs/xds.md gives are the code's, in whatever unit.
func TestLimitsOfXDS(t *testing.T) {
	c := DefaultServer()
	defaults := map[string]string{}
	for _, f := range serverTable(&c, nil).fields {
		defaults[f.name] = strings.Join(f.get(), ",")
	}
	rows := regexp.MustCompile("(?m)^\\| .* \\| `--([a-z-]+)` \\| ([0-9,]+)( KiB| MiB)? \\|").FindAllStringSubmatch(testpage.Read(t, "xds.md"), -1)
	for _, m := range rows {
		unit := map[string]int{"": 1, " KiB": 1 << 10, " MiB": 1 << 20}[m[3]]
		var n int
		if _, err := fmt.Sscan(strings.ReplaceAll(m[2], ",", ""), &n); err != nil || fmt.Sprint(n*unit) != defaults[m[1]] {
			t.Errorf("docs/xds.md: --%s is %s, not %s%s", m[1], defaults[m[1]], m[2], m[3])
		}
	}
	for name := range defaults {
		if strings.HasPrefix(name, "max-") && !slices.ContainsFunc(rows, func(m []string) bool { return m[1] == name }) {
			t.Errorf("docs/xds.md lacks --%s", name)
		}
	}
}
