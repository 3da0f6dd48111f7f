package proxy

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/internal/testpage"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
)

// readPage gives a page of docs with its lines joined.
func readPage(t *testing.T, name string) string {
	t.Helper()
	return strings.Join(strings.Fields(testpage.Read(t, name)), " ")
}

// TestCapturePage holds the numbers of docs/capture.md against the code's.
func TestCapturePage(t *testing.T) {
	page := readPage(t, "capture.md")
	ports := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(DefaultOpaquePorts)), ", "), "[]")
	for _, want := range []string{
		"`--opaque-ports` (" + ports + ")",
		fmt.Sprintf("says nothing for %s may be waiting", clientSilence),
		fmt.Sprintf("taken for bytes after %s.", undecidedTime),
		fmt.Sprintf("begins like HTTP within %s,", refusedTime),
		fmt.Sprintf("is waited for (%s)", (&Config{}).discoveryTimeout()),
		fmt.Sprintf("requests wait %s (`--fail-fast-inbound`)", endpoints.InboundFailFast),
	} {
		if !strings.Contains(page, want) {
			t.Errorf("docs/capture.md lacks %q", want)
		}
	}
}

// TestAccessLogPage holds the fields that docs/dataplane.md lists against those that are written.
func TestAccessLogPage(t *testing.T) {
	_, section, _ := strings.Cut(readPage(t, "dataplane.md"), "## Access log ")
	section, _, ok := strings.Cut(section, " It never makes a request wait")
	if !ok {
		t.Fatal("docs/dataplane.md has no section of the access log")
	}
	var listed []string
	for _, m := range regexp.MustCompile("`([a-z][A-Za-z]*)`").FindAllStringSubmatch(section, -1) {
		listed = append(listed, m[1])
	}
	var written []string
	for _, s := range []reflect.Type{reflect.TypeFor[entry](), reflect.TypeFor[attemptEntry]()} {
		for f := range s.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			written = append(written, name)
		}
	}
	slices.Sort(listed)
	slices.Sort(written)
	if listed, written := slices.Compact(listed), slices.Compact(written); !slices.Equal(listed, written) {
		t.Errorf("listed  %v\nwritten %v", listed, written)
	}
}
