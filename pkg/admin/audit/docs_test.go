package audit

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmesh/freshmesh/internal/testpage"
	"github.com/freshmesh/freshmesh/pkg/ack"
)

// TestAuditPage: docs/audit.md has every field of the audit's JSON, and no other.
func TestAuditPage(t *testing.T) {
	table, rest := testpage.Table(t, "audit.md", "fields")
	listed := testpage.Names(table)
	written := fieldsOf(reflect.TypeFor[ack.Audit](), "")
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
