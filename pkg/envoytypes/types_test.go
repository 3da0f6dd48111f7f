package envoytypes

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write types.go anew")

// all is what a resource, or a message inside of one, can be of. Envoy's
// services and data formats are not, but for RTDS's Runtime, and the Resource wrapper.
var all = regexp.MustCompile(`^github\.com/(envoyproxy/go-control-plane/envoy/(config|extensions|type|watchdog|service/(runtime|discovery))/(.*/)?v3|` +
	`cncf/xds/go/(udpa/type|xds/(core|type))/(.*/)?v[13])$`)

// TestTypesAreComplete: types.go imports every v3 package of the linked
// versions. -update writes it.
func TestTypesAreComplete(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "github.com/envoyproxy/go-control-plane/envoy/...", "github.com/cncf/xds/go/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var b strings.Builder
	b.WriteString("package envoytypes\n\nimport (\n\t// The message types that a resource can be of, or can hold. Written by `go test ./pkg/envoytypes -update`.\n")
	for _, path := range slices.Sorted(strings.FieldsSeq(string(out))) {
		if all.MatchString(path) {
			fmt.Fprintf(&b, "\t_ %q\n", path)
		}
	}
	b.WriteString(")\n")
	if *update {
		if err := os.WriteFile("types.go", []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("types.go")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(have)); diff != "" {
		t.Errorf("types.go (-want +got); `go test ./pkg/envoytypes -update` writes it:\n%s", diff)
	}
}
