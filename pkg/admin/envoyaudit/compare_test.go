package envoyaudit

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// recordings are of Envoy 1.40: `go test ./test/interop -run TestEnvoyInspected -record` makes them anew.
var recordings = []string{"delta", "sotw", "delta-trouble", "sotw-trouble"}

func read(t testing.TB, recording, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", recording, file))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func readWanted(t testing.TB, recording string) Wanted {
	t.Helper()
	want := Wanted{}
	for _, kind := range mesh.GeneratedTypes {
		var answer struct{ Resources []Resource }
		if err := json.Unmarshal(read(t, recording, kind.Short()+".json"), &answer); err != nil {
			t.Fatal(err)
		}
		want[kind] = answer.Resources
	}
	return want
}

// lines is a report as people read it.
func lines(r Report) string {
	var b strings.Builder
	for _, d := range r.Differences {
		b.WriteString(d.String() + "\n")
	}
	return b.String()
}

func TestRecordings(t *testing.T) {
	for _, name := range recordings {
		t.Run(name, func(t *testing.T) {
			running, err := Read(read(t, name, "config_dump.json"), read(t, name, "clusters.json"))
			if err != nil {
				t.Fatal(err)
			}
			report := Compare(readWanted(t, name), running)
			if report.InEffect != (len(report.Differences) == 0) || report.InEffect == strings.HasSuffix(name, "trouble") {
				t.Errorf("in effect: %v, %d differences", report.InEffect, len(report.Differences))
			}
			text, err := json.MarshalIndent(report, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".json", string(text)+"\n")
			golden(t, name+".txt", lines(report))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

// Each case changes one thing in what was recorded of an Envoy that has all it should.
func TestOneChange(t *testing.T) {
	const (
		mixed   = `cds mixed: `
		rdsFrom = `"rds":{"config_source":{"ads":{}`
	)
	for _, tt := range []struct {
		name string
		// recording is delta or sotw; file is where old becomes new, everywhere in it.
		recording, file, old, new string
		// want are the beginnings of the differences' lines, in order; nil for none.
		want []string
	}{
		{"nothing", "delta", "cds.json", "mixed", "mixed", nil},
		{"a version, not the content, in delta", "delta", "cds.json", `"version":"`, `"version":"x`, nil},
		{"an older cluster in delta", "delta", "config_dump.json", `"connect_timeout":"5s"`, `"connect_timeout":"6s"`, []string{
			"cds echo.default.svc.cluster.local:8080: altered, version ", mixed + "altered", "cds shares: altered",
		}},
		{"an older cluster in sotw", "sotw", "cds.json", `"connectTimeout":"5s"`, `"connectTimeout":"6s"`, []string{
			"cds echo.default.svc.cluster.local:8080: older, want version ", mixed + "older", "cds shares: older",
		}},
		{"the control plane has no clusters", "delta", "cds.json", `"resources":[`, `"resources":[],"other":[`, []string{
			"cds echo.default.svc.cluster.local:8080: extra", mixed + "extra", "cds shares: extra",
		}},
		{"the bootstrap asks for no clusters", "delta", "config_dump.json", `"cds_config":`, `"other":`, nil},
		{"the bootstrap has clusters from a file", "delta", "config_dump.json", `"cds_config":{"ads":{}`, `"cds_config":{"path_config_source":{}`, nil},
		{"a route configuration that nobody needs", "delta", "rds.json", `"resources":[`, `"resources":[{"name":"unused","version":"1","body":{"name":"unused"}},`, nil},
		{"a route configuration that Envoy lacks", "delta", "config_dump.json", `"dynamic_route_configs":`, `"other":`, []string{"rds outbound: missing, want version "}},
		{"a route configuration that Envoy has from elsewhere", "delta", "rds.json", `"resources":[`, `"resources":[],"other":[`, []string{"rds outbound: extra"}},
		{"a listener that only drains", "delta", "config_dump.json", `"dynamic_listeners":[`, `"dynamic_listeners":[{"name":"old","draining_state":{"version_info":"1"}},`, nil},
		{"a listener that warms", "delta", "config_dump.json", `"active_state":`, `"warming_state":`, []string{"lds outbound: warming, version "}},
		{"an old refusal of a listener", "delta", "config_dump.json", `"active_state":`, `"error_state":{"details":"no"},"active_state":`, nil},
		{"a refused listener", "delta", "config_dump.json", `"active_state":`, `"error_state":{"details":"no"},"other":`, []string{"lds outbound: refused, want version "}},
		{"a listener that the node has no more", "delta", "lds.json", `"resources":[`, `"resources":[],"other":[`, []string{"lds outbound: extra"}},
		{"an endpoint too many", "delta", "eds.json", `"portValue":3}`, `"portValue":33}`, []string{
			"eds mixed: endpoint 127.0.0.9:3: extra", "eds mixed: endpoint 127.0.0.9:33: missing",
		}},
		{"an endpoint's health", "delta", "clusters.json", `"DRAINING"`, `"HEALTHY"`, []string{"eds mixed: endpoint 127.0.0.9:2: older: health: has HEALTHY, want DRAINING"}},
		{"an endpoint's weight", "delta", "clusters.json", `"weight":7`, `"weight":8`, []string{"eds mixed: endpoint 127.0.0.9:3: older"}},
		{"an endpoint's priority", "delta", "clusters.json", `"priority":1`, `"priority":2`, []string{"eds mixed: endpoint 127.0.0.9:5: older"}},
		{"an endpoint's locality", "delta", "clusters.json", `"sub_zone":"c"`, `"sub_zone":"d"`, []string{"eds mixed: endpoint 127.0.0.9:5: older"}},
		{"an endpoint's host name", "delta", "clusters.json", `"hostname":"five"`, `"hostname":"six"`, []string{"eds mixed: endpoint 127.0.0.9:5: older"}},
		{"an endpoint's identity", "delta", "config_dump.json", `spiffe://cluster.local/ns/default/sa/echo`, `spiffe://other`, []string{"eds mixed: endpoint 127.0.0.9:5: older"}},
		{"an endpoint without identity", "delta", "config_dump.json", `"metadata":{"filter_metadata"`, `"metadata":{"other_metadata"`, []string{"eds mixed: unreadable"}},
		{"an endpoint that should not have an identity", "delta", "eds.json", `"metadata":{"filterMetadata":{"envoy.transport_socket_match"`, `"metadata":{"filterMetadata":{"other"`, []string{"eds mixed: endpoint 127.0.0.9:5: older"}},
		{"Envoy's own health check", "delta", "clusters.json", `"eds_health_status":"HEALTHY"`, `"eds_health_status":"HEALTHY","failed_active_health_check":true`, nil},
		{"a removed endpoint that still passes its checks", "delta", "clusters.json", `"eds_health_status":"DRAINING"`, `"eds_health_status":"DRAINING","pending_dynamic_removal":true`, []string{"eds mixed: endpoint 127.0.0.9:2: older"}},
		{"an assignment that the control plane lacks", "delta", "eds.json", `"name":"mixed"`, `"name":"other"`, []string{
			"eds mixed: endpoint 127.0.0.9:1: extra", "eds mixed: endpoint 127.0.0.9:2", "eds mixed: endpoint 127.0.0.9:3", "eds mixed: endpoint 127.0.0.9:4", "eds mixed: endpoint 127.0.0.9:5",
		}},
		{"redacted", "delta", "config_dump.json", `"alt_stat_name":"echo_default_8080"`, `"alt_stat_name":"[redacted]"`, nil},
		{"unknown to this build, version current", "delta", "config_dump.json", `least_request.v3.LeastRequest"`, `least_request.v9.LeastRequest"`, nil},
		{"unknown to this build, version not known", "sotw", "config_dump.json", `least_request.v3.LeastRequest"`, `least_request.v9.LeastRequest"`, []string{
			"cds echo.default.svc.cluster.local:8080: unreadable", mixed + "unreadable", "cds shares: unreadable",
		}},
		{"unknown to the server, version not known", "sotw", "lds.json", `"body":`, `"undecoded":"no such type","other":`, []string{"lds outbound: unreadable, want version "}},
		{"routes from elsewhere", "delta", "config_dump.json", rdsFrom, `"rds":{"config_source":{"path":"/x"`, []string{"lds outbound: altered"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{}
			for _, file := range []string{"config_dump", "clusters", "cds", "eds", "lds", "rds"} {
				files[file+".json"] = string(read(t, tt.recording, file+".json"))
			}
			if !strings.Contains(files[tt.file], tt.old) {
				t.Fatalf("%s does not hold %s", tt.file, tt.old)
			}
			files[tt.file] = strings.ReplaceAll(files[tt.file], tt.old, tt.new)
			running, err := Read([]byte(files["config_dump.json"]), []byte(files["clusters.json"]))
			if err != nil {
				t.Fatal(err)
			}
			want := Wanted{}
			for _, kind := range mesh.GeneratedTypes {
				var answer struct{ Resources []Resource }
				if err := json.Unmarshal([]byte(files[kind.Short()+".json"]), &answer); err != nil {
					t.Fatal(err)
				}
				want[kind] = answer.Resources
			}
			report := Compare(want, running)
			if len(report.Differences) != len(tt.want) {
				t.Fatalf("differences:\n%swant %q", lines(report), tt.want)
			}
			for i, d := range report.Differences {
				if !strings.HasPrefix(d.String(), tt.want[i]) {
					t.Errorf("%s\nwant %s…", d, tt.want[i])
				}
			}
		})
	}
}

// What no Envoy says is an error, and never an Envoy that has nothing.
func TestNotAnEnvoy(t *testing.T) {
	dump, clusters := string(read(t, "delta", "config_dump.json")), string(read(t, "delta", "clusters.json"))
	for _, tt := range []struct{ name, dump, clusters, want string }{
		{"a page", "<html>", clusters, "config_dump: invalid character"},
		{"another program", "{}", clusters, "config_dump: no BootstrapConfigDump"},
		{"asked without include_eds", strings.Replace(dump, "EndpointsConfigDump", "OtherConfigDump", 1), clusters, "config_dump: no EndpointsConfigDump"},
		{"cut short", dump[:len(dump)/2], clusters, "config_dump: unexpected end"},
		{"no node", strings.Replace(dump, `"id":"envoy-delta"`, `"id":""`, 1), clusters, "the node has no id"},
		{"clusters as text", dump, "xds-server::observability_name::xds-server\n", "clusters: invalid character"},
		{"clusters of another program", dump, "{}", "clusters: no cluster_statuses"},
	} {
		if _, err := Read([]byte(tt.dump), []byte(tt.clusters)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
}
