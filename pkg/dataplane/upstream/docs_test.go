package upstream

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

var update = flag.Bool("update", false, "write docs/errors.md")

const page = "../../../docs/errors.md"

const intro = `# Errors of the data plane

Every error that the proxy makes itself carries one of the reasons below: in the
field Proxy-Status (RFC 9209) of HTTP responses, in the status message of gRPC
calls, in the access log, and as the label ` + "`reason`" + ` of ` + "`freshmesh_requests_total`" + `.
An answer of the upstream's own has none of it: a 503 without Proxy-Status is the
application's. In the access log it has the reason ` + "`none`" + `, as every success.
What cannot be read as an HTTP/1.1 request at all has a reason too, but no line in the access log; its connection is closed. The
frames of HTTP/2 have words of their own for that (RFC 9113 section 7), and neither log nor metric.

One line tells the layer, the reason, the endpoint where there is one, and what happened. It is the body
of an HTTP response, and the status message of a gRPC call; Proxy-Status has the same in its parameters
layer, reason, next-hop and details:

    freshmesh: balancing: all_ejected: 10.0.0.3:8080: all 3 endpoints of echo.default.svc.cluster.local:8080 ejected since 12:00:03.120Z, last: connect_refused 10.0.0.3:8080

A gRPC call gets its status without a message body (trailers-only), or, once
messages have come, in the trailers. Any other response that has begun ends
abnormally, and only log and metrics have the reason.

Over HTTP/2 an answer of ours may come before the request's body is complete. Where more than 64 KiB of it is to come, or nobody knows how much, the stream is then reset with NO_ERROR
(RFC 9113 section 8.1), as Envoy does; a shorter rest is taken and dropped. ` + "`curl --http2-prior-knowledge`" + ` 7.88 (Debian 12) shows such a reset as error 92 and hides the answer; the access log has it.

This page is written from the code's table: ` + "`go test ./pkg/dataplane/upstream -run TestErrorsPage -update`" + `.

`

// errorsPage is docs/errors.md.
func errorsPage() string {
	var b strings.Builder
	b.WriteString(intro)
	b.WriteString("| Reason | Layer | HTTP | gRPC | RFC 9209 error | Meaning | What to do |\n|---|---|---|---|---|---|---|\n")
	for _, o := range outcomes {
		fmt.Fprintf(&b, "| `%s` | %s | %d | %s | `%s` | %s | %s |\n", o.reason, o.layer, o.status, o.grpc, o.proxyError, o.meaning, o.advice)
	}
	return b.String()
}

func TestErrorsPage(t *testing.T) {
	want := errorsPage()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/errors.md, -want +got:\n%s", diff)
	}
}

// Each reason stands once in the table, with everything that a person needs.
func TestOutcomesAreComplete(t *testing.T) {
	seen := map[Reason]bool{}
	for _, o := range outcomes {
		if seen[o.reason] {
			t.Errorf("%s is there twice", o.reason)
		}
		seen[o.reason] = true
		if o.layer == "" || o.status == 0 || o.grpc == 0 || o.proxyError == "" || o.meaning == "" || o.advice == "" {
			t.Errorf("%s: something is missing: %+v", o.reason, o)
		}
	}
}

// Each limit that docs/dataplane.md lists has a reason of the table, or none at all.
func TestLimitsPage(t *testing.T) {
	table, _ := testpage.Table(t, "dataplane.md", "limits")
	rows := regexp.MustCompile("(?m)^\\| `--.* \\| (`([a-z_]+)`|–.*) \\|$").FindAllStringSubmatch(table, -1)
	if len(rows) == 0 {
		t.Fatal("the table of limits has no rows")
	}
	for _, m := range rows {
		if m[2] != "" && !slices.Contains(Reasons(), Reason(m[2])) {
			t.Errorf("there is no reason %s", m[2])
		}
	}
}
