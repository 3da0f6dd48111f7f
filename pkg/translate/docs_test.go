package translate

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/freshmesh/freshmesh/internal/testpage"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// TestAnnotationsPage: docs/dataplane.md has each annotation once and no other, the keys and values that it names are
// taken, and so is its example.
func TestAnnotationsPage(t *testing.T) {
	table, _ := testpage.Table(t, "dataplane.md", "annotations")
	var named []string
	values := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\| (.*?[^\\\\]) \\| .* \\| .* \\|$").FindAllStringSubmatch(table, -1) {
		for _, name := range testpage.Quoted(row[1]) {
			named = append(named, name)
			values[name] = row[2]
		}
	}
	slices.Sort(named)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(annotations)), named); diff != "" {
		t.Errorf("docs/dataplane.md, annotations (-code +page):\n%s", diff)
	}
	svc := &mesh.Service{Ports: []mesh.ServicePort{{Name: "http", Port: 8080, AppProtocol: "kubernetes.io/h2c"}}}
	sample := strings.NewReplacer("=D", "=2s", "=N", "=2", "=X", "=2", "/PATH", "/healthy", "SERVICE", "a.B", `A\|B`, "5xx|reset", `true\|false`, "true")
	// beside is what a key cannot be without.
	beside := map[string]string{"health-check": "tcp", "slow-start": "window=2s", "retry": "on=5xx"}
	for name, text := range values {
		for _, value := range testpage.Quoted(text) {
			err := annotations[name](&settings{}, svc, sample.Replace(value))
			if err != nil && annotations[name](&settings{}, svc, beside[name]+", "+sample.Replace(value)) != nil {
				t.Errorf("docs/dataplane.md, %s: %s: %v", name, value, err)
			}
		}
	}

	var example struct {
		Metadata struct{ Annotations map[string]string }
	}
	_, block, _ := strings.Cut(testpage.Read(t, "dataplane.md"), "```yaml\nmetadata:\n")
	block, _, _ = strings.Cut(block, "```")
	if err := yaml.Unmarshal([]byte("metadata:\n"+block), &example); err != nil || len(example.Metadata.Annotations) == 0 {
		t.Fatalf("the example: %v\n%s", err, block)
	}
	svc.Annotations = make(map[string]string)
	for name, value := range example.Metadata.Annotations {
		svc.Annotations[strings.TrimPrefix(name, "freshmesh.dev/")] = value
	}
	readSettings(svc, func(field, reason string) { t.Errorf("the example: %s: %s", field, reason) })
}
