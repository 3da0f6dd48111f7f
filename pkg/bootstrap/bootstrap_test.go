package bootstrap_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"github.com/freshmesh/freshmesh/pkg/bootstrap"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
)

var update = flag.Bool("update", false, "write the golden files anew")

// run runs the command.
func run(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = bootstrap.Main(args, &out, &err)
	return code, out.String(), err.String()
}

func TestGolden(t *testing.T) {
	for name, args := range map[string][]string{
		"envoy.yaml": {"envoy", "--node-id", "echo-1.default"},
		"envoy-all.yaml": {
			"envoy", "--node-id", "echo-1.default", "--sotw", "--namespace", "default", "--node-cluster", "echo",
			"--xds-address", "xds.mesh.svc:18000", "--region", "r1", "--zone", "z1", "--sub-zone", "s1",
			"--admin-address", "[::1]:15100", "--outbound-address", "127.0.0.1:15101",
			"--tcp", "127.0.0.1:5432=db.default.svc.cluster.local:5432", "--metadata", "node=worker-1,listeners=socket",
		},
		"grpc.json":     {"grpc", "--node-id", "echo-1.default"},
		"grpc-all.json": {"--node-id", "echo-1.default", "--zone", "z1", "--namespace", "default", "--metadata", "node=worker-1", "grpc"},
	} {
		code, got, stderr := run(args...)
		if code != 0 || stderr != "" {
			t.Errorf("%s: code %d: %s", name, code, stderr)
			continue
		}
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil { //nolint:gosec // a golden file
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What is written for Envoy is a valid Bootstrap.
func TestEnvoyIsValid(t *testing.T) {
	text, err := bootstrap.Envoy(bootstrap.Options{NodeID: "a", TCP: map[string]string{"127.0.0.1:1": "c"}})
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	var b bootstrapv3.Bootstrap
	if err := protojson.Unmarshal(asJSON, &b); err != nil {
		t.Fatal(err)
	}
	if err := b.ValidateAll(); err != nil {
		t.Error(err)
	}
}

// grpc-js-xds refuses a file in which the locality is missing.
func TestGRPCAlwaysHasALocality(t *testing.T) {
	text, err := bootstrap.GRPC(bootstrap.Options{NodeID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	var b struct {
		Node struct {
			Locality *struct{} `json:"locality"`
		} `json:"node"`
	}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if b.Node.Locality == nil {
		t.Error("no node.locality")
	}
}

func TestOutputFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "envoy.yaml")
	code, stdout, stderr := run("envoy", "--node-id", "a", "--output", path)
	if code != 0 || stdout != "" || stderr != "" {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	_, want, _ := run("envoy", "--node-id", "a")
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	if code, _, stderr := run("envoy", "--node-id", "a", "--output", filepath.Join(path, "x")); code != 1 || !strings.HasPrefix(stderr, "xds-server bootstrap: ") {
		t.Errorf("code %d, %q", code, stderr)
	}
}

func TestWrongCommandLines(t *testing.T) {
	for _, test := range []struct {
		args string
		want string
	}{
		{"", "name one client: envoy or grpc"},
		{"nginx --node-id a", `client "nginx": envoy or grpc`},
		{"envoy grpc --node-id a", "name one client: envoy or grpc"},
		{"envoy", "--node-id is required"},
		{"envoy --node-id a --xds-address 18000", `--xds-address: "18000": want HOST:PORT`},
		{"envoy --node-id a --xds-address :18000", `--xds-address: ":18000": want HOST:PORT`},
		{"grpc --node-id a --xds-address h:99999", `--xds-address: "h:99999": port "99999" is not between 1 and 65535`},
		{"envoy --node-id a --admin-address localhost:1", `--admin-address: "localhost:1": want IP:PORT`},
		{"envoy --node-id a --outbound-address 1", `--outbound-address: "1": want IP:PORT`},
		{"envoy --node-id a --outbound-address 127.0.0.1:0", `--outbound-address: "127.0.0.1:0": the port must not be 0`},
		{"envoy --node-id a --tcp 127.0.0.1:1=", "--tcp: 127.0.0.1:1: no cluster is named"},
		{"envoy --node-id a --tcp 1=c", `--tcp: "1": want IP:PORT`},
		{"envoy --node-id a --metadata namespace=x", "--metadata: namespace has a flag of its own: --namespace"},
		{"grpc --node-id a --sotw", "--sotw is for envoy only"},
		{"grpc --node-id a --admin-address 127.0.0.1:1", "--admin-address is for envoy only"},
		{"envoy --node a", "unknown flag: --node"},
	} {
		code, stdout, stderr := run(strings.Fields(test.args)...)
		if code != 2 || stdout != "" || stderr != "xds-server bootstrap: "+test.want+"\n" {
			t.Errorf("%s: code %d, stdout %q, stderr %q, want %q", test.args, code, stdout, stderr, test.want)
		}
	}
}

func TestHelp(t *testing.T) {
	code, stdout, stderr := run("--help")
	if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "Usage: xds-server bootstrap envoy|grpc --node-id ID [flags]\n") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}
