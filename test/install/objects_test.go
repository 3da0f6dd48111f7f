package install

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// manifests is configs/kubernetes.
const manifests = "../../configs/kubernetes"

// strict decodes known fields of known kinds only, as the API server does with strict field validation.
var strict = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// nameOf is "Kind namespace/name", or "Kind name".
func nameOf(o runtime.Object) string {
	m, name := o.(metav1.Object), ""
	if m.GetNamespace() != "" {
		name = m.GetNamespace() + "/"
	}
	return o.GetObjectKind().GroupVersionKind().Kind + " " + name + m.GetName()
}

// decode gives the typed objects of YAML documents, sorted by name.
func decode(t *testing.T, what string, text []byte) []runtime.Object {
	t.Helper()
	var out []runtime.Object
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			slices.SortFunc(out, func(a, b runtime.Object) int { return cmp.Compare(nameOf(a), nameOf(b)) })
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if blank(doc) {
			continue
		}
		o, _, err := strict.Decode(doc, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v in\n%s", what, err, doc)
		}
		out = append(out, o)
	}
}

func blank(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

// file gives the objects of one file below configs/kubernetes.
func file(t *testing.T, name string) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(manifests, name))
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, name, text)
}

// one gives the only object of a type.
func one[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	var found []T
	for _, o := range objects {
		if typed, ok := o.(T); ok {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T", len(found), *new(T))
	}
	return found[0]
}
