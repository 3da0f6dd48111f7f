package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// listed is what we read of `go list -json`.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// list gives our packages as `go list` sees them.
func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,GoFiles,Imports", module+"...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var packages []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func TestImports(t *testing.T) {
	g := graph{}
	for _, p := range list(t) {
		g[strings.TrimPrefix(p.ImportPath, module)] = p.Imports
	}
	if len(g) < 3 {
		t.Fatalf("only %d packages found", len(g))
	}
	for _, line := range g.judge() {
		t.Error(line)
	}
}

func TestPureCodeReadsNoClock(t *testing.T) {
	for _, p := range list(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		if r, ok := ruleFor(path); !ok || !r.pure {
			continue
		}
		for _, name := range p.GoFiles {
			file := filepath.Join(p.Dir, name)
			fset := token.NewFileSet()
			tree, err := parser.ParseFile(fset, file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, use := range clockUses(fset, tree) {
				t.Errorf("%s/%s: %s is pure: the time comes in as an argument", path, use, path)
			}
		}
	}
}

// clockUses gives "FILE:LINE: time.X" for each use of the clock.
func clockUses(fset *token.FileSet, tree *ast.File) []string {
	var uses []string
	ast.Inspect(tree, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, selector.Sel.Name) {
			at := fset.Position(selector.Pos())
			uses = append(uses, fmt.Sprintf("%s:%d: time.%s", filepath.Base(at.Filename), at.Line, selector.Sel.Name))
		}
		return true
	})
	return uses
}

// TestForbiddenEdgesAreCaught: the rules bite.
func TestForbiddenEdgesAreCaught(t *testing.T) {
	const (
		ok        = ""
		nothing   = "it may import nothing of ours"
		pure      = "it is pure: no I/O, no logger, no clock"
		onlyMesh  = "of ours it may import only pkg/mesh"
		dataplane = "of ours it may import only pkg/mesh, pkg/dataplane/..."
		client    = "pkg/kube is the only user of the Kubernetes client"
	)
	r, found := ruleFor("pkg/controlplane")
	if !found {
		t.Fatal("pkg/controlplane has no rule")
	}
	controlplane := "of ours it may import only " + strings.Join(r.may, ", ")
	for _, test := range []struct{ from, to, want string }{
		{"pkg/mesh", module + "pkg/object", nothing},
		{"pkg/mesh", "net/netip", ok},
		{"pkg/mesh", "net", pure},
		{"pkg/translate", module + "pkg/mesh", ok},
		{"pkg/translate", module + "pkg/translate/names", ok},
		{"pkg/translate/names", module + "pkg/translate", ok},
		{"pkg/translate", module + "pkg/meshes", onlyMesh},
		{"pkg/translate", module + "pkg/object", onlyMesh},
		{"pkg/translate", "github.com/hashicorp/go-hclog", pure},
		{"pkg/snapshot", module + "pkg/ack", onlyMesh},
		{"pkg/ack", "os", pure},
		{"pkg/ack", "net/http", pure},
		{"pkg/ack", "google.golang.org/grpc/codes", pure},
		{"pkg/kube", "k8s.io/client-go/tools/cache", ok},
		{"pkg/kube", module + "pkg/manifest", "of ours it may import only pkg/mesh, pkg/object"},
		{"pkg/manifest", "k8s.io/client-go/rest", client},
		{"pkg/manifest", "k8s.io/client-go/kubernetes/scheme", ok},
		{"pkg/controlplane", "k8s.io/client-go/tools/clientcmd", client},
		{"pkg/dataplane", module + "pkg/snapshot", dataplane},
		{"pkg/dataplane/upstream", module + "pkg/dataplane/endpoints", "of ours it may import only pkg/dataplane/message"},
		{"pkg/dataplane/endpoints", module + "pkg/dataplane/http1/relay", ok},
		{"pkg/dataplane/http1/relay", module + "pkg/dataplane/endpoints", "of ours it may import only pkg/dataplane/message, pkg/dataplane/http1, pkg/dataplane/upstream, pkg/dataplane/linger"},
		{"pkg/xds/ads", "google.golang.org/grpc/codes", pure},
		{"pkg/dataplane", module + "pkg/dataplane/proxy", ok},
		{"pkg/dataplane/discovery", module + "pkg/dataplane/endpoints", onlyMesh},
		{"pkg/controlplane", module + "pkg/dataplane", controlplane},
		{"pkg/xds", "github.com/envoyproxy/go-control-plane/pkg/cache/v3", "the servers and caches of go-control-plane are for comparison only"},
		{"pkg/xds", module + "pkg/refresh", "of ours it may import only pkg/mesh, pkg/snapshot, pkg/ack, pkg/drain"},
		{"pkg/config", module + "pkg/mesh", nothing},
		{"pkg/admin", module + "cmd/xds-server", "of ours it may import only pkg/mesh, pkg/ack, pkg/history, pkg/drain, pkg/envoytypes, internal/profiling"},
		{"pkg/refresh", "testing", "test support does not belong into the programs"},
		{"cmd/dataplane", module + "pkg/dataplane", ok},
		{"test/model/oracle", module + "pkg/ack", nothing},
		{"test/model/oracle", module + "pkg/snapshot", nothing},
		{"test/model/oracle", module + "pkg/xds/ads", nothing},
		{"test/model", module + "pkg/ack", ok},
		{"internal/kubetest", module + "pkg/kube", "of ours it may import only internal/testaddr"},
		{"internal/kubetest", "k8s.io/client-go/rest", client},
		{"internal/mesh", module + "cmd/dataplane", "of ours it may import only pkg/..., internal/..."},
	} {
		var want []string
		if test.want != ok {
			want = []string{fmt.Sprintf("%s imports %s: %s", test.from, strings.TrimPrefix(test.to, module), test.want)}
		}
		if diff := cmp.Diff(want, graph{test.from: {test.to}}.judge()); diff != "" {
			t.Errorf("%s -> %s (-want +got):\n%s", test.from, test.to, diff)
		}
	}
	if got := (graph{"pkg/util": nil}).judge(); len(got) != 1 || !strings.Contains(got[0], "has no rule") {
		t.Errorf("a package without a rule: %q", got)
	}
}

func TestClockUsesAreCaught(t *testing.T) {
	const source = "package p\nimport \"time\"\nvar a = time.Second\nvar b = time.Now()\n"
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"p.go:4: time.Now"}, clockUses(fset, tree)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
