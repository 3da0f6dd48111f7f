package faults

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// head begins the report.
const head = `# Faults, and how long they hurt

Measured by ` + "`make faults`" + `, which breaks the path between source, control plane and proxy in each of these ways,
with the default intervals (probe-interval 10 s, ack-timeout 5 s, source-check-interval 30 s) and 50 requests a
second through every client. [test/faults](../test/faults) holds the same cases, shortened, in every test run; one of them by
` + "`go test ./test/faults -run 'TestFaults/cases/clean_cut' -v`" + ` (the name of the fault, with _ for each space).

The change made under a fault, where none is named, is a turnover of a service of four endpoints: one dies, the
address of one is taken over by an instance of another service at once, one lives on though it is no endpoint any more,
and three new ones come. Nothing but being told can show a proxy the second and the third.

- **recovery**: from the fault's effect until the last failed or wrong request is over and every new endpoint
  has answered. The effect is the fault's beginning (b), or its end (e) where nothing can pass before, or the
  change (c) where the fault comes with it. The bound is 20 s, and for a fault of the source its check interval more; a number
  in brackets says why a client cannot keep it.
- **failed** requests, of all since the fault began; nobody sends one again. **wrong**: answered by an
  instance that is no endpoint of the service any more. Both count from the fault's beginning, before its effect too.
- **retries** that the proxy made by itself, and **refused**: requests that met an endpoint to which
  no connection was to be had, both by its own counters. grpc-go counts neither. A dead endpoint costs our data plane
  one, and those that dial in the same instant (when the node wakes, all that waited). Envoy goes on trying until it is told, unless the service asks for outlier detection
  (annotation ` + "`freshmesh.dev/outlier`" + `, off by default; one row has it on, with ` + "`consecutive-5xx=1`" + `).
- **audit**: what ` + "`/audit`" + ` said of the node, asked five times a second, from the fault's beginning on. **blind**: for
  how long of that it said fresh while requests failed or were answered wrongly; allowed are probe-interval and
  ack-timeout, and for a fault of the source its check interval besides.

`

// write writes the report of a full run.
func write(t *testing.T, path string, all map[string][]verdict) {
	t.Helper()
	var b strings.Builder
	b.WriteString(head)
	b.WriteString("| Fault | Client | Recovery | Failed | Wrong | Retries / refused | Audit | Blind |\n|---|---|---|---|---|---|---|---|\n")
	var notes []string
	for _, f := range faults {
		verdicts, ok := all[f.name]
		if !ok {
			t.Errorf("no measurement of %q: it is not in the report", f.name)
			continue
		}
		for i, v := range verdicts {
			name := f.name
			if i > 0 {
				name = ""
			}
			recovery := f.recovery(v)
			if why := f.beyond[v.client]; why != "" {
				if !slices.Contains(notes, why) {
					notes = append(notes, why)
				}
				recovery += fmt.Sprintf(" [%d]", slices.Index(notes, why)+1)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %d of %d | %d | %s | %s | %.1f s |\n",
				name, v.client, recovery, v.failed, v.sent, v.wrong, v.counted(), cmp.Or(v.audit, "-"), v.blind.Seconds())
		}
	}
	for i, note := range notes {
		fmt.Fprintf(&b, "\n[%d] %s\n", i+1, note)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a document
		t.Fatal(err)
	}
}

// recovery is the cell of the table.
func (f fault) recovery(v verdict) string {
	from := map[effect]string{fromChange: "c", fromBegin: "b", fromEnd: "e"}[f.counts]
	if !v.recovered {
		return fmt.Sprintf("not within %.0f s (%s)", f.bound(full).Seconds(), from)
	}
	return fmt.Sprintf("%.1f s (%s)", v.recovery.Seconds(), from)
}

// counted is the cell of the table.
func (v verdict) counted() string {
	if v.client == grpcGo {
		return "-"
	}
	return fmt.Sprintf("%.0f / %.0f", v.counts.retries, v.counts.refused)
}
