package translate_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/object"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	sigsyaml "sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

// TestGolden translates each testdata/NAME.yaml and compares with
// testdata/NAME.golden.yaml. Comments at the head of the input say what to show:
//
//	# show: eds cds       types of resources (default: cds eds)
//	# only: TEXT          names that contain this
//	# view: zone=z1       beside the unshaped form, as often as wanted
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range inputs {
		if strings.HasSuffix(in, ".golden.yaml") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(in), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(in)
			if err != nil {
				t.Fatal(err)
			}
			s := newState()
			s.apply(t, puts(objects(t, text)...)...)
			s.check(t)
			got := s.show(t, directives(text))
			golden := strings.TrimSuffix(in, ".yaml") + ".golden.yaml"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// objects decodes a file of YAML documents. Problems of conversion fail the
// test: they are not what is tested here.
func objects(t *testing.T, text []byte) []mesh.Object {
	t.Helper()
	var out []mesh.Object
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(doc, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		o, problems, err := object.Convert(decoded)
		if err != nil || len(problems) > 0 {
			t.Fatalf("%v %v", problems, err)
		}
		out = append(out, o)
	}
}

type directive struct {
	types []mesh.Type
	only  string
	views map[string]mesh.View
}

func directives(text []byte) directive {
	d := directive{types: []mesh.Type{mesh.TypeCluster, mesh.TypeEndpoint}, views: make(map[string]mesh.View)}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# "), ": ")
		if !ok || !strings.HasPrefix(line, "# ") {
			continue
		}
		switch key {
		case "show":
			d.types = nil
			for _, s := range strings.Fields(value) {
				kind, _ := mesh.ParseType(s)
				d.types = append(d.types, kind)
			}
		case "only":
			d.only = value
		case "view":
			var v mesh.View
			for _, field := range strings.Fields(value) {
				name, text, _ := strings.Cut(field, "=")
				switch name {
				case "zone":
					v.Zone = text
				case "node":
					v.Node = text
				case "namespace":
					v.Namespace = text
				}
			}
			d.views[value] = v
		}
	}
	return d
}

type shown struct {
	Resource string          `json:"resource"`
	For      string          `json:"for,omitempty"`
	View     string          `json:"view,omitempty"`
	Body     json.RawMessage `json:"body"`
}

// show writes what is asked for: all names, the chosen resources in each view where they differ, the problems.
func (s *state) show(t *testing.T, d directive) []byte {
	t.Helper()
	out := struct {
		Names     map[string][]string `json:"names"`
		Problems  []string            `json:"problems,omitempty"`
		Resources []shown             `json:"resources"`
	}{Names: make(map[string][]string)}
	for _, kind := range mesh.GeneratedTypes {
		out.Names[kind.Short()] = s.names(kind)
	}
	for _, p := range s.Problems() {
		out.Problems = append(out.Problems, p.String())
	}
	for _, kind := range d.types {
		for _, name := range s.names(kind) {
			if !strings.Contains(name, d.only) {
				continue
			}
			r := s.resources[mesh.ResourceName{Type: kind, Name: name}]
			one := shown{Resource: kind.Short() + " " + name, For: string(r.For), Body: text(t, kind, r.Body)}
			out.Resources = append(out.Resources, one)
			for _, label := range slices.Sorted(maps.Keys(d.views)) {
				v := d.views[label].Mask(r.ShapedBy)
				if v == (mesh.View{}) {
					continue
				}
				one.View, one.Body = label, text(t, kind, r.Shape(v))
				out.Resources = append(out.Resources, one)
			}
		}
	}
	b, err := sigsyaml.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func text(t *testing.T, kind mesh.Type, body []byte) json.RawMessage {
	t.Helper()
	b, err := protojson.Marshal(parse(t, kind, body))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
