package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/auditlog"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
	"github.com/freshmesh/freshmesh/pkg/kube"
	"github.com/freshmesh/freshmesh/pkg/manifest"
)

// described is a metric of ours as a registry describes it.
var described = regexp.MustCompile(`^Desc\{fqName: "(freshmesh_[a-z0-9_]+)".*variableLabels: \{([a-z_,]*)\}\}$`)

// registered gives the metrics of ours in a registry: name → its labels, separated by commas.
func registered(r *prometheus.Registry) map[string]string {
	out := make(map[string]string)
	descs := make(chan *prometheus.Desc)
	go func() {
		r.Describe(descs)
		close(descs)
	}()
	for d := range descs {
		if m := described.FindStringSubmatch(d.String()); m != nil {
			out[m[1]] = m[2]
		}
	}
	return out
}

// server gives the registry of an xds-server that has everything: a cluster as its source, and an audit log.
func server(t *testing.T) *prometheus.Registry {
	t.Helper()
	registry, dir := prometheus.NewRegistry(), t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	const text = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kube.New(kube.Config{Kubeconfig: kubeconfig, Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	log := hclog.NewNullLogger()
	controlplane.New(controlplane.Config{
		Source:   manifest.New(manifest.Config{Dir: dir, Logger: log}),
		AuditLog: auditlog.New(auditlog.Config{Path: filepath.Join(dir, "audit.log"), Registerer: registry}),
		Logger:   log, Registry: registry,
	})
	return registry
}

// proxy gives the registry of a dataplane that has everything.
func proxy(t *testing.T) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewRegistry()
	p, err := dataplane.New(dataplane.Config{
		NodeID: "a", XDSAddresses: []string{"127.0.0.1:1"}, AdminAddress: "127.0.0.1:0", OutboundAddress: "127.0.0.1:0",
		AccessLog: filepath.Join(t.TempDir(), "access.log"), Registry: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return registry
}

// metricRow is a row of docs/metrics.md: the name, and its labels in backticks.
var metricRow = regexp.MustCompile("(?m)^\\| `(freshmesh_[a-z0-9_]+)` \\|([^|]*)\\|")

// TestMetrics: docs/metrics.md has the metrics that each program registers, with their labels, and no others.
func TestMetrics(t *testing.T) {
	page := read(t, "docs/metrics.md")
	for program, registry := range map[string]*prometheus.Registry{"xds-server": server(t), "dataplane": proxy(t)} {
		_, section, _ := strings.Cut(page, "\n## "+program+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		got := make(map[string]string)
		for _, m := range metricRow.FindAllStringSubmatch(section, -1) {
			got[m[1]] = strings.NewReplacer("`", "", " ", "").Replace(m[2])
		}
		if diff := cmp.Diff(registered(registry), got); diff != "" {
			t.Errorf("docs/metrics.md, %s (-code +page):\n%s", program, diff)
		}
	}
}

// TestLabelValues: what a label can say is explained, as far as a server shows it from its start.
func TestLabelValues(t *testing.T) {
	explained := read(t, "docs/metrics.md") + read(t, "docs/xds.md")
	families, err := server(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				values++
				if strings.HasPrefix(f.GetName(), "freshmesh_") && !strings.Contains(explained, "`"+l.GetValue()+"`") {
					t.Errorf("%s: nothing is said of %s=%q", f.GetName(), l.GetName(), l.GetValue())
				}
			}
		}
	}
	if values < 20 {
		t.Errorf("only %d values", values)
	}
}

// TestMetricsAreKnown: a metric that a page names is one that a program has, and each that the code names is in docs/metrics.md.
func TestMetricsAreKnown(t *testing.T) {
	known := make(map[string]bool)
	for _, m := range metricRow.FindAllStringSubmatch(read(t, "docs/metrics.md"), -1) {
		known[m[1]] = true
	}
	name := regexp.MustCompile(`freshmesh_[a-z0-9_]+`)
	for _, page := range current(t) {
		for _, metric := range name.FindAllString(read(t, page), -1) {
			if !known[metric] {
				t.Errorf("%s: there is no metric %s", page, metric)
			}
		}
	}
	inCode := regexp.MustCompile(`"(freshmesh_[a-z0-9_]+)"`)
	for _, file := range files(t) {
		if !strings.HasPrefix(file, "pkg/") || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range inCode.FindAllStringSubmatch(read(t, file), -1) {
			if !known[m[1]] {
				t.Errorf("%s: %s is not in docs/metrics.md", file, m[1])
			}
		}
	}
}
