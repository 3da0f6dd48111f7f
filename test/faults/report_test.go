package faults

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"
)

// write writes the report of a full run.
func write(t *testing.T, path string, all map[string][]verdict) {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# Faults and recovery

Measured by ` + "`make faults`" + `, with the default intervals (probe-interval 10 s, ack-timeout 5 s). test/faults says how.
`)
	for _, f := range faults {
		verdicts, ok := all[f.name]
		if !ok {
			continue
		}
		for _, v := range verdicts {
			fmt.Fprintf(&b, "| %s | %s | %s | %d of %d | %d | %s | %s |\n", f.name, v.client, f.recovery(v), v.failed, v.sent, v.wrong, cmp.Or(v.audit, "-"), "")
		}
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a document
		t.Fatal(err)
	}
}

func (f fault) recovery(v verdict) string {
	if !v.recovered {
		return "not within the run"
	}
	return fmt.Sprintf("%.1f s", v.recovery.Seconds())
}
