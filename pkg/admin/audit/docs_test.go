package audit

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmesh/freshmesh/pkg/ack"
)

// TestAuditPage: docs/audit.md has every field of the audit's JSON, and no other.
func TestAuditPage(t *testing.T) {
	b, err := os.ReadFile("../../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "<!-- fields: tested against the code -->")
	table, rest, ok := strings.Cut(table, "<!-- end of fields -->")
	if !ok {
		t.Fatal("docs/audit.md has no table of fields")
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(table, -1) {
		for _, m := range quoted.FindAllStringSubmatch(row[1], -1) {
			listed = append(listed, m[1])
		}
	}
	written := fieldsOf(reflect.TypeFor[ack.Audit](), "")
	slices.Sort(listed)
	slices.Sort(written)
	if diff := cmp.Diff(written, listed); diff != "" {
		t.Errorf("docs/audit.md (-code +page):\n%s", diff)
	}
	for f := range reflect.TypeFor[Merged]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && !strings.Contains(rest, "`"+name+"`") {
			t.Errorf("docs/audit.md does not name %s", name)
		}
	}
}

// fieldsOf gives the paths of all that a type writes as JSON, nodes[].state for example.
func fieldsOf(typ reflect.Type, path string) []string {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ == reflect.TypeFor[time.Time](), typ.Implements(reflect.TypeFor[json.Marshaler]()):
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct:
		return fieldsOf(typ.Elem(), path+"[]")
	case typ.Kind() == reflect.Struct:
		var out []string
		for f := range typ.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
				out = append(out, fieldsOf(f.Type, strings.TrimPrefix(path+"."+name, "."))...)
			}
		}
		return out
	}
	return []string{path}
}
