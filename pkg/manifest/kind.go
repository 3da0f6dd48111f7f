package manifest

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// readKinds are the kinds that the mesh reads.
var readKinds = [...]struct {
	name, version string
	empty         func() apiObject
}{
	{"Service", "v1", func() apiObject { return new(corev1.Service) }},
	{"EndpointSlice", "discovery.k8s.io/v1", func() apiObject { return new(discoveryv1.EndpointSlice) }},
	{"Pod", "v1", func() apiObject { return new(corev1.Pod) }},
	{"Node", "v1", func() apiObject { return new(corev1.Node) }},
	{"Namespace", "v1", func() apiObject { return new(corev1.Namespace) }},
}

// apiObject is an API object with its metadata.
type apiObject interface {
	runtime.Object
	metav1.Object
}

// newObject is an empty object of the type; nil for one that the mesh does not read.
func newObject(t metav1.TypeMeta) apiObject {
	for _, k := range readKinds {
		if k.name == t.Kind && k.version == t.APIVersion {
			return k.empty()
		}
	}
	return nil
}

// versionOf is the API version in which a kind is read; "" for kinds that are not.
func versionOf(kind string) string {
	for _, k := range readKinds {
		if k.name == kind {
			return k.version
		}
	}
	return ""
}

func group(apiVersion string) string {
	g, _, found := strings.Cut(apiVersion, "/")
	if !found {
		return ""
	}
	return g
}

// maxTypo is by how many letters a kind may differ from one that is read to count as that one, mistyped.
const maxTypo = 2

// apiKinds are the kinds of the two API groups that have some which the mesh reads.
var apiKinds = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two packages that we link do not fit together
		}
	}
	return s
}()

// notRead tells of a document that is not read, where it looks as if it was meant
// to be: of one that is a kind mistyped the file's last good form stays in force. Kinds of other API
// groups, and other kinds of these, are none of the mesh's business.
func (d *decoder) notRead(doc document, t metav1.TypeMeta) {
	if want := versionOf(t.Kind); want != "" && group(want) == group(t.APIVersion) {
		d.Warn(doc.begin(), "%s: apiVersion %s is not read, only %s", t.Kind, t.APIVersion, want)
		return
	}
	version, err := schema.ParseGroupVersion(t.APIVersion)
	if err != nil || !apiKinds.IsVersionRegistered(version) || apiKinds.Recognizes(version.WithKind(t.Kind)) {
		return
	}
	line, what := valueLine(doc, "kind", t.Kind), "document "+strconv.Itoa(doc.number)+": kind: "+t.APIVersion+" has no kind "+strconv.Quote(t.Kind)
	if meant := closest(strings.TrimSuffix(t.Kind, "List")); meant != "" {
		d.Fatal(line, "%s; is it %s (%s)?", what, meant, versionOf(meant))
		return
	}
	d.Warn(line, "%s, ignored", what)
}

// closest gives the kind that is read of which another is a mistyped form; "" for none.
func closest(kind string) string {
	best, at := "", maxTypo+1
	for _, k := range readKinds {
		if n := distance(strings.ToLower(kind), strings.ToLower(k.name)); n < at {
			best, at = k.name, n
		}
	}
	return best
}

// distance is how many letters have to be put, left out or changed to make one text of another (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// valueLine is the file's line on which a key has a value, else that of the document's first content.
func valueLine(doc document, key, value string) int {
	at := regexp.MustCompile(`["']?` + regexp.QuoteMeta(key) + `["']?\s*:\s*["']?` + regexp.QuoteMeta(value) + `\b`).FindIndex(doc.text)
	if at == nil {
		return doc.begin()
	}
	return doc.line + bytes.Count(doc.text[:at[0]], []byte("\n"))
}
