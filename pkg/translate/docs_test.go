package translate

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// TestAnnotationsPage: docs/dataplane.md has each annotation once and no other, the keys and values that it names are
// taken, and so is its example.
func TestAnnotationsPage(t *testing.T) {
	b, err := os.ReadFile("../../docs/dataplane.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "<!-- annotations: tested against the code -->")
	table, _, ok := strings.Cut(table, "<!-- end of annotations -->")
	if !ok {
		t.Fatal("docs/dataplane.md has no table of annotations")
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	var named []string
	values := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\| (.*?[^\\\\]) \\| .* \\| .* \\|$").FindAllStringSubmatch(table, -1) {
		for _, name := range quoted.FindAllStringSubmatch(row[1], -1) {
			named = append(named, name[1])
			values[name[1]] = row[2]
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
		for _, value := range quoted.FindAllStringSubmatch(text, -1) {
			err := annotations[name](&settings{}, svc, sample.Replace(value[1]))
			if err != nil && annotations[name](&settings{}, svc, beside[name]+", "+sample.Replace(value[1])) != nil {
				t.Errorf("docs/dataplane.md, %s: %s: %v", name, value[1], err)
			}
		}
	}

	var example struct {
		Metadata struct{ Annotations map[string]string }
	}
	_, block, _ := strings.Cut(string(b), "```yaml\nmetadata:\n")
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
