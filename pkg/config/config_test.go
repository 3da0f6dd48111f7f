package config

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// environment gives a lookup over pairs.
func environment(pairs map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := pairs[name]
		return value, ok
	}
}

// inCluster is the environment of a container, which needs no source flag.
func inCluster(pairs map[string]string) func(string) (string, bool) {
	all := map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
	maps.Copy(all, pairs)
	return environment(all)
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrecedence(t *testing.T) {
	const file = "ack:\n  timeout: 1s\n"
	for _, test := range []struct {
		name string
		file string
		env  map[string]string
		args []string
		want time.Duration
	}{
		{name: "default", want: 5 * time.Second},
		{name: "file", file: file, want: time.Second},
		{name: "dotted key", file: "ack.timeout: 1s\n", want: time.Second},
		{name: "environment over default", env: map[string]string{"FRESHMESH_ACK_TIMEOUT": "2s"}, want: 2 * time.Second},
		{name: "environment over file", file: file, env: map[string]string{"FRESHMESH_ACK_TIMEOUT": "2s"}, want: 2 * time.Second},
		{name: "empty environment is unset", file: file, env: map[string]string{"FRESHMESH_ACK_TIMEOUT": ""}, want: time.Second},
		{name: "flag over all", file: file, env: map[string]string{"FRESHMESH_ACK_TIMEOUT": "2s"}, args: []string{"--ack-timeout", "3s"}, want: 3 * time.Second},
		{name: "flag over file", file: file, args: []string{"--ack-timeout=3s"}, want: 3 * time.Second},
		{name: "last flag", args: []string{"--ack-timeout=3s", "--ack-timeout=4s"}, want: 4 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := test.args
			if test.file != "" {
				args = append(args, "--config", writeFile(t, "mesh.yaml", test.file))
			}
			c, _, err := LoadServer(args, inCluster(test.env))
			if err != nil {
				t.Fatal(err)
			}
			if c.AckTimeout != test.want {
				t.Errorf("ack timeout %v, want %v", c.AckTimeout, test.want)
			}
		})
	}
}

func TestConfigFileFromEnvironment(t *testing.T) {
	path := writeFile(t, "mesh.yaml", "cluster.domain: example.org\n")
	c, _, err := LoadServer(nil, inCluster(map[string]string{"FRESHMESH_CONFIG": path}))
	if err != nil {
		t.Fatal(err)
	}
	if c.ClusterDomain != "example.org" {
		t.Errorf("cluster domain %q", c.ClusterDomain)
	}
}

func TestAListIsReplacedWhole(t *testing.T) {
	path := writeFile(t, "d.yaml", "node: {id: a}\nxds:\n  address: [one:1, two:2]\nlisten:\n- 127.0.0.1:1=a\n- 127.0.0.1:2=b,http\n")
	load := func(args []string, env map[string]string) Dataplane {
		t.Helper()
		c, _, err := LoadDataplane(append(args, "--config", path), environment(env))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := load(nil, nil)
	if diff := cmp.Diff([]string{"one:1", "two:2"}, c.XDSAddresses); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	listens := []Listen{{Address: "127.0.0.1:1", Cluster: "a", Protocol: TCP}, {Address: "127.0.0.1:2", Cluster: "b", Protocol: HTTP}}
	if diff := cmp.Diff(listens, c.Listen); diff != "" {
		t.Errorf("listen (-want +got):\n%s", diff)
	}
	c = load(nil, map[string]string{"FRESHMESH_XDS_ADDRESS": "three:3, four:4", "FRESHMESH_LISTEN": "127.0.0.1:3=c,tcp 127.0.0.1:4=d"})
	if diff := cmp.Diff([]string{"three:3", "four:4"}, c.XDSAddresses); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	listens = []Listen{{Address: "127.0.0.1:3", Cluster: "c", Protocol: TCP}, {Address: "127.0.0.1:4", Cluster: "d", Protocol: TCP}}
	if diff := cmp.Diff(listens, c.Listen); diff != "" {
		t.Errorf("listen (-want +got):\n%s", diff)
	}
	c = load([]string{"--xds-address=five:5", "--xds-address", "six:6,seven:7"}, map[string]string{"FRESHMESH_XDS_ADDRESS": "three:3"})
	if diff := cmp.Diff([]string{"five:5", "six:6", "seven:7"}, c.XDSAddresses); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
}

// TestWrongValuesNameTheirOrigin gives each kind of wrong value to each origin
// that can carry it. FILE stands for the configuration file's path.
func TestWrongValuesNameTheirOrigin(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		env  map[string]string
		file string
		want string
	}{
		{"flag", []string{"--ack-timeout", "soon"}, nil, "", `--ack-timeout: "soon" is not a duration such as 10s or 500ms`},
		{"environment", nil, map[string]string{"FRESHMESH_ACK_TIMEOUT": "10"}, "", `FRESHMESH_ACK_TIMEOUT: "10" is not a duration such as 10s or 500ms`},
		{"file", nil, nil, "ack:\n  timeout: 0s\n", "FILE:2: ack.timeout: 0s is not greater than 0"},
		{"file, overridden by a flag", []string{"--ack-timeout=1s"}, nil, "ack: {timeout: never}\n", `FILE:1: ack.timeout: "never" is not a duration such as 10s or 500ms`},
		{"negative", []string{"--probe-interval=-1s"}, nil, "", "--probe-interval: -1s is not greater than 0"},
		{"address without port", []string{"--xds-address=127.0.0.1"}, nil, "", `--xds-address: "127.0.0.1" is not an address such as 127.0.0.1:15000 or :15000`},
		{"address with a host name", []string{"--xds-address=mesh:80"}, nil, "", `--xds-address: "mesh:80": "mesh" is not an IP address`},
		{"port too large", []string{"--admin-address=:70000"}, nil, "", `--admin-address: ":70000": port "70000" is not a number from 0 to 65535`},
		{"domain", []string{"--cluster-domain=.local"}, nil, "", `--cluster-domain: ".local" is not a domain such as cluster.local`},
		{"level", nil, map[string]string{"FRESHMESH_LOG_LEVEL": "loud"}, "", `FRESHMESH_LOG_LEVEL: "loud" is not one of trace, debug, info, warn, error, off`},
		{"number", nil, nil, "max:\n  streams: many\n", `FILE:2: max.streams: "many" is not a whole number`},
		{"number too small", []string{"--max-streams=0"}, nil, "", "--max-streams: 0 is less than 1"},
		{"boolean", nil, nil, "pprof: perhaps\n", `FILE:1: pprof: "perhaps" is neither true nor false`},
		{"directory missing", []string{"--manifests=/nowhere/at/all"}, nil, "", "--manifests: /nowhere/at/all: no such file or directory"},
		{"directory missing, from the file", nil, nil, "manifests: /nowhere/at/all\n", "FILE:1: manifests: /nowhere/at/all: no such file or directory"},
		{"file missing", nil, map[string]string{"FRESHMESH_KUBECONFIG": "/nowhere"}, "", "FRESHMESH_KUBECONFIG: /nowhere: no such file or directory"},
		{"directory for a file", []string{"--kubeconfig=/"}, nil, "", "--kubeconfig: / is a directory, not a file"},
		{"config missing", []string{"--config=/nowhere"}, nil, "", "--config: /nowhere: no such file or directory"},
		{"unknown flag", []string{"--xds-addr=x"}, nil, "", "unknown flag: --xds-addr"},
		{"argument", []string{"now"}, nil, "", `unexpected argument "now"`},
		{"unknown key", nil, nil, "xds:\n  address: 127.0.0.1:1\n  addr: 127.0.0.1:1\n", "FILE:3: xds.addr: unknown key"},
		{"unknown group", nil, nil, "xdss:\n  address: 127.0.0.1:1\n", "FILE:2: xdss: unknown key"},
		{"group without settings", nil, nil, "xds: 127.0.0.1:1\n", "FILE:1: xds: must be a mapping of settings"},
		{"no mapping", nil, nil, "hello\n", "FILE:1: must be a mapping of settings"},
		{"mapping for a value", nil, nil, "xds:\n  address: {host: a}\n", "FILE:2: xds.address: must be a single value"},
		{"list for a value", nil, nil, "xds:\n  address: [127.0.0.1:1]\n", "FILE:2: xds.address: must be a single value"},
		{"twice", nil, nil, "xds.address: 127.0.0.1:1\nxds:\n  address: 127.0.0.1:1\n", "FILE:3: xds.address: already set in line 1"},
		{"alias", nil, nil, "xds: &a\n  address: *a\n", "FILE:1: xds: anchors and aliases are not supported"},
		{"no YAML", nil, nil, "a: b: c\n", "FILE: mapping values are not allowed in this context"},
		{"two documents", nil, nil, "pprof: true\n---\npprof: false\n", "FILE: holds more than one YAML document"},
		{"two wrong values", []string{"--ack-timeout=x", "--max-streams=x"}, nil, "", "--ack-timeout: \"x\" is not a duration such as 10s or 500ms\n--max-streams: \"x\" is not a whole number"},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := test.args
			want := test.want
			if test.file != "" {
				path := writeFile(t, "mesh.yaml", test.file)
				args = append(args, "--config", path)
				want = strings.ReplaceAll(want, "FILE", path)
			}
			_, _, err := LoadServer(args, inCluster(test.env))
			if err == nil {
				t.Fatalf("accepted, want %q", want)
			}
			if err.Error() != want {
				t.Errorf("got  %s\nwant %s", err, want)
			}
		})
	}
}

func TestSource(t *testing.T) {
	directory := t.TempDir()
	file := writeFile(t, "kubeconfig", "")
	if c, _, err := LoadServer([]string{"--manifests", directory}, environment(nil)); err != nil || c.Source != FromManifests {
		t.Errorf("manifests: %v, %v", c.Source, err)
	}
	if c, _, err := LoadServer([]string{"--manifests", directory}, inCluster(nil)); err != nil || c.Source != FromManifests {
		t.Errorf("manifests in a cluster: %v, %v", c.Source, err)
	}
	if c, _, err := LoadServer([]string{"--kubeconfig", file}, environment(nil)); err != nil || c.Source != FromKubeconfig {
		t.Errorf("kubeconfig: %v, %v", c.Source, err)
	}
	if c, _, err := LoadServer(nil, inCluster(nil)); err != nil || c.Source != InCluster {
		t.Errorf("in a cluster: %v, %v", c.Source, err)
	}
	if _, _, err := LoadServer(nil, environment(nil)); err == nil || !strings.Contains(err.Error(), "no source") {
		t.Errorf("none: %v", err)
	}
	_, _, err := LoadServer([]string{"--manifests", directory}, environment(map[string]string{"FRESHMESH_KUBECONFIG": file}))
	if err == nil || err.Error() != "--manifests and --kubeconfig (FRESHMESH_KUBECONFIG): only one source can be given" {
		t.Errorf("both: %v", err)
	}
	c, _, err := LoadServer([]string{"--manifests", directory, "--kubeconfig="}, environment(map[string]string{"FRESHMESH_KUBECONFIG": file}))
	if err != nil || c.Source != FromManifests {
		t.Errorf("a flag takes the other source back: %v, %v", c.Source, err)
	}
}

func TestActionsAndWarnings(t *testing.T) {
	directory := t.TempDir()
	for _, test := range []struct {
		arg      string
		want     Action
		contains string
	}{
		{"--help", Print, "--xds-address"},
		{"-h", Print, "Usage: xds-server serve"},
		{"--print-config", Print, "address: 127.0.0.1:18000"},
		{"--version", Version, ""},
		{"--check-config", Check, ""},
		{"--pprof", Run, ""},
	} {
		_, result, err := LoadServer([]string{test.arg}, inCluster(nil))
		if err != nil {
			t.Errorf("%s: %v", test.arg, err)
		}
		if result.Action != test.want || !strings.Contains(result.Text, test.contains) {
			t.Errorf("%s: action %v, text %q", test.arg, result.Action, result.Text)
		}
	}
	_, result, err := LoadServer([]string{"--static-resources", directory}, inCluster(nil))
	if err != nil || len(result.Warnings) > 0 {
		t.Errorf("static resources: %q, %v", result.Warnings, err)
	}
	_, result, err = LoadDataplane([]string{"--node-id=a", "--inbound-address=:15006"}, environment(nil))
	if err != nil || len(result.Warnings) > 0 {
		t.Errorf("inbound: %q, %v", result.Warnings, err)
	}
	if _, _, err := LoadServer([]string{"--check-config", "--ack-timeout=x"}, inCluster(nil)); err == nil {
		t.Error("--check-config accepts a wrong value")
	}
}

func TestDataplane(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string // the error, or "" for none
	}{
		{"enough", []string{"--node-id=a"}, ""},
		{"pod gives the id", []string{"--pod=web-1"}, ""},
		{"no id", nil, "no node id: give --node-id ID, or --pod NAME"},
		{"no server", []string{"--node-id=a", "--xds-address="}, "--xds-address: at least one address is needed"},
		{"server by name", []string{"--node-id=a", "--xds-address=xds-server.mesh.svc:18000"}, ""},
		{"server by IPv6", []string{"--node-id=a", "--xds-address=[::1]:18000"}, ""},
		{"server without host", []string{"--node-id=a", "--xds-address=:18000"}, `--xds-address: ":18000": "" is neither an IP address nor a host name`},
		{"server at port 0", []string{"--node-id=a", "--xds-address=a:0"}, `--xds-address: "a:0": port "0" is not a number from 1 to 65535`},
		{"listen without cluster", []string{"--node-id=a", "--listen=:1"}, `--listen: ":1": names no cluster (the form is ADDRESS=CLUSTER[,tcp|http][,proxy])`},
		{"listen with an empty cluster", []string{"--node-id=a", "--listen=:1=,tcp"}, `--listen: ":1=,tcp": names no cluster (the form is ADDRESS=CLUSTER[,tcp|http][,proxy])`},
		{"listen by udp", []string{"--node-id=a", "--listen=:1=b,udp"}, `--listen: ":1=b,udp": protocol "udp" is neither tcp nor http (the form is ADDRESS=CLUSTER[,tcp|http][,proxy])`},
		{"listen on no address", []string{"--node-id=a", "--listen=x=b"}, `--listen: "x" is not an address such as 127.0.0.1:15000 or :15000`},
		{"one address twice", []string{"--node-id=a", "--listen=127.0.0.1:15001=b"}, "--outbound-address and --listen 127.0.0.1:15001=b,tcp: both want 127.0.0.1:15001"},
		{"port 0 twice", []string{"--node-id=a", "--listen=127.0.0.1:0=b", "--listen=127.0.0.1:0=c"}, ""},
		{"health off", []string{"--node-id=a", "--health-address="}, ""},
		{"outbound cannot be off", []string{"--node-id=a", "--outbound-address="}, `--outbound-address: "" is not an address such as 127.0.0.1:15000 or :15000`},
		{"namespace", []string{"--node-id=a", "--namespace=Bad"}, `--namespace: "Bad" is not a namespace name`},
		{"state directory that can be made", []string{"--node-id=a", "--state-dir", filepath.Join(t.TempDir(), "new")}, ""},
		{"state directory without parent", []string{"--node-id=a", "--state-dir=/nowhere/new"}, "--state-dir: /nowhere: no such file or directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := LoadDataplane(test.args, environment(nil))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
	c, _, err := LoadDataplane([]string{"--pod=web-1", "--namespace=shop"}, environment(nil))
	if err != nil || c.NodeID != "web-1.shop" {
		t.Errorf("node id %q, %v", c.NodeID, err)
	}
}

// TestKeysAreDistinct: no setting's key may be another's, or lead to another's.
func TestKeysAreDistinct(t *testing.T) {
	var s Server
	var d Dataplane
	for name, table := range map[string]*table{"server": serverTable(&s, environment(nil)), "dataplane": dataplaneTable(&d)} {
		for i, a := range table.fields {
			for _, b := range table.fields[i+1:] {
				if a.key() == b.key() || strings.HasPrefix(a.key(), b.key()+".") || strings.HasPrefix(b.key(), a.key()+".") {
					t.Errorf("%s: keys %s and %s collide", name, a.key(), b.key())
				}
			}
		}
	}
}
