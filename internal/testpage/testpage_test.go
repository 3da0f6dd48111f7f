package testpage_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmesh/freshmesh/internal/testpage"
)

func TestTable(t *testing.T) {
	table, after := testpage.Table(t, "dataplane.md", "limits")
	if !strings.HasPrefix(table, "|") && !strings.HasPrefix(table, "\n|") || strings.Contains(table, "<!--") || after == "" {
		t.Errorf("%q", table)
	}
}

func TestNames(t *testing.T) {
	table := "| `header` | |\n|---|---|\n| `b`, `a: 1` | `value` |\n| plain `x` | |\n"
	if diff := cmp.Diff([]string{"a: 1", "b"}, testpage.Names(table)); diff != "" {
		t.Error(diff)
	}
}
