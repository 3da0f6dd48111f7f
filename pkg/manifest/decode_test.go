package manifest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmesh/freshmesh/pkg/directory"
)

func TestDecode(t *testing.T) {
	const slice = `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s"},"addressType":"IPv4"`
	tests := []struct {
		name, file, text string
		// want has one line for each object and finding.
		want []string
	}{
		{"empty", "a.yaml", "", nil},
		{"comments and markers only", "a.yaml", "# nothing\n---\n---\n# here\n...\n", nil},
		{"several documents", "a.yaml", "%YAML 1.2\n---\n" + service("a", 80) + "---   # next\n" + service("b", 80) + "...\n", []string{"3 Service a", "11 Service b"}},
		{"windows line ends and byte order mark", "a.yaml", "\xef\xbb\xbf" + strings.ReplaceAll(service("a", 80)+"---\n"+service("b", 80), "\n", "\r\n"), []string{"1 Service a", "9 Service b"}},
		{"document on the marker's line", "a.yaml", "--- {apiVersion: v1, kind: Service, metadata: {name: a}}\n", []string{"1 Service a"}},
		{"list", "a.yaml", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: n1}}\n- {apiVersion: apps/v1, kind: Deployment}\n", []string{"1 Node n1"}},
		{"typed list without types", "a.json", `{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`, []string{"1 Service a", "1 Service b"}},
		{"slice list", "a.json", `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSliceList","items":[` + slice + `}]}`, []string{"1 EndpointSlice s"}},
		{"json values in a row", "a.json", slice + "}\n" + slice + "}\n", []string{"1 EndpointSlice s", "2 EndpointSlice s"}},
		{"json in yaml", "a.yaml", slice + "}\n", []string{"1 EndpointSlice s"}},
		{"other kinds", "a.yaml", "apiVersion: apps/v1\nkind: Deployment\nwhatever: 1\n---\napiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: a}\n", nil},
		{"old version", "a.yaml", "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\n", []string{"warn 1 EndpointSlice: apiVersion discovery.k8s.io/v1beta1 is not read, only discovery.k8s.io/v1"}},
		{"typo", "a.yaml", service("a", 80) + "---\n" + strings.Replace(endpoints("a-1", "a", "127.0.0.1"), "addresses", "adresses", 1), []string{"1 Service a", "9 EndpointSlice a-1", `warn 19 EndpointSlice a-1: unknown field "endpoints[0].adresses", ignored`}},
		{
			"mistyped kind", "a.yaml", "# first\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---\n\napiVersion: v1\nkind: Servic\nmetadata: {name: a}\n",
			[]string{"3 Pod p", `fatal 9 document 2: kind: v1 has no kind "Servic"; is it Service (v1)?`},
		},
		{
			"kind in small letters", "a.json", `{"apiVersion":"discovery.k8s.io/v1","kind":"endpointslice"}`,
			[]string{`fatal 1 document 1: kind: discovery.k8s.io/v1 has no kind "endpointslice"; is it EndpointSlice (discovery.k8s.io/v1)?`},
		},
		{"kind of another group", "a.yaml", "apiVersion: v1\nkind: EndpointSlice\n", []string{`fatal 2 document 1: kind: v1 has no kind "EndpointSlice"; is it EndpointSlice (discovery.k8s.io/v1)?`}},
		{"mistyped list", "a.yaml", "apiVersion: v1\nkind: ServcieList\n", []string{`fatal 2 document 1: kind: v1 has no kind "ServcieList"; is it Service (v1)?`}},
		{"mistyped in a list", "a.yaml", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pods}\n", []string{`fatal 4 document 1: kind: v1 has no kind "Pods"; is it Pod (v1)?`}},
		{"no kind of v1", "a.yaml", "apiVersion: v1\nkind: Deployment\n", []string{`warn 2 document 1: kind: v1 has no kind "Deployment", ignored`}},
		{"other kinds of v1", "a.yaml", "apiVersion: v1\nkind: ConfigMap\n---\napiVersion: v1\nkind: Endpoints\n---\napiVersion: example.com/v1\nkind: Servic\n", nil},
		{"no kind", "a.yaml", "a: 1\n", []string{"fatal 1 not a Kubernetes object: it needs both kind and apiVersion"}},
		{"scalar", "a.yaml", "hello\n", []string{"fatal 1 not a Kubernetes object: json: cannot unmarshal string into Go value of type v1.TypeMeta"}},
		{"syntax", "a.yaml", service("a", 80) + "---\n" + "a: b\n  c: d\n", []string{"1 Service a", "fatal 10 mapping values are not allowed in this context"}},
		{"key twice", "a.yaml", "# x\n---\nkind: Service\nkind: Service\n", []string{`fatal 4 key "kind" already set in map`}},
		{"json cut short", "a.json", slice + ",\n", []string{"fatal 2 unexpected EOF"}},
		{"json syntax", "a.json", "{\n\"a\": ]\n}", []string{"fatal 2 invalid character ']' looking for beginning of value"}},
		{"wrong type", "a.yaml", "\n\n---\n\napiVersion: v1\nkind: Service\nspec: 1\n", []string{"fatal 5 Service: json: cannot unmarshal number into Go struct field Service.spec of type v1.ServiceSpec"}},
		{
			"unquoted annotation", "a.yaml", "# x\n---\napiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  annotations:\n    freshmesh.dev/timeout: 1\n    freshmesh.dev/x: yes\n  labels: {version: 1.5, app: a}\nspec: {selector: {version: -2}}\n---\n" + service("b", 80),
			[]string{
				"13 Service b",
				`fatal 8 Service a: metadata.annotations["freshmesh.dev/timeout"]: 1 is no text as it stands: put the value in quotes`,
				`fatal 9 Service a: metadata.annotations["freshmesh.dev/x"]: true is no text as it stands: put the value in quotes`,
				`fatal 10 Service a: metadata.labels["version"]: 1.5 is no text as it stands: put the value in quotes`,
				`fatal 10 Service a: spec.selector["version"]: -2 is no text as it stands: put the value in quotes`,
			},
		},
		{
			"unquoted in a list of json", "a.json", `{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"annotations":{"a":1}},"spec":{"nodeSelector":{"n":false}}}]}`,
			[]string{
				`fatal 1 Pod: metadata.annotations["a"]: 1 is no text as it stands: put the value in quotes`,
				`fatal 1 Pod: spec.nodeSelector["n"]: false is no text as it stands: put the value in quotes`,
			},
		},
		{"annotation that is no scalar", "a.yaml", "apiVersion: v1\nkind: Service\nmetadata: {annotations: {a: [1]}}\n", []string{"fatal 1 Service: json: cannot unmarshal array into Go struct field ObjectMeta.metadata.annotations of type string"}},
		{"too deep", "a.json", strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 5) + strings.Repeat("]}", 5), []string{"fatal 1 lists within lists deeper than 4"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects, findings := decode(tt.file, []byte(tt.text))
			var got []string
			for _, o := range objects {
				got = append(got, fmt.Sprintf("%d %s %s", o.line, kindOf(t, o), o.object.(apiObject).GetName()))
			}
			for _, f := range findings.All {
				severity := "warn"
				if f.Fatal {
					severity = "fatal"
				}
				got = append(got, fmt.Sprintf("%s %d %s", severity, f.Line, f.Reason))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("decode (-want +got):\n%s", diff)
			}
		})
	}
}

func kindOf(t *testing.T, d decoded) string {
	t.Helper()
	text, err := json.Marshal(d.object)
	must(t, err)
	var head struct{ Kind string }
	must(t, json.Unmarshal(text, &head))
	return head.Kind
}

func TestFindingsAreBounded(t *testing.T) {
	_, findings := decode("a.yaml", []byte(strings.Repeat("apiVersion: v1beta1\nkind: Pod\n---\n", 99)+"{"))
	want := directory.Finding{Line: 50*3 - 2, Reason: "and 51 more", Fatal: true}
	if all := findings.All; len(all) != 50 || all[49] != want {
		t.Errorf("%d findings, the last %+v, want 50 and %+v", len(all), all[len(all)-1], want)
	}
}

// Whatever stands in a file: no panic, lines within the file, and the same
// answer twice.
func FuzzDecode(f *testing.F) {
	f.Add(true, []byte(service("a", 80)+"---\n"+endpoints("a-1", "a", "127.0.0.1")))
	f.Add(true, []byte("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: n}}\n- 3\n"))
	f.Add(true, []byte("%YAML 1.2\n---\n&a [*a]\n...\n--- |\n x\n"))
	f.Add(false, []byte(`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"p"}},null,1]} {`))
	f.Fuzz(func(t *testing.T, isYAML bool, data []byte) {
		name := "a.json"
		if isYAML {
			name = "a.yaml"
		}
		v := parse(name, data)
		_, findings := decode(name, data)
		lines := strings.Count(string(data), "\n") + 1
		for _, found := range findings.All {
			if found.Line < 1 || found.Line > lines+1 {
				t.Errorf("finding %+v in a text of %d lines", found, lines)
			}
			if strings.Contains(found.Reason, "\n") {
				t.Errorf("finding of several lines: %q", found.Reason)
			}
		}
		for _, item := range v.Items {
			if m := item.Value.Metadata(); m.Name == "" || m.UID != "" || m.ResourceVersion != "" {
				t.Errorf("object %+v", m)
			}
		}
		if diff := cmp.Diff(len(v.Items), len(parse(name, data).Items)); diff != "" {
			t.Errorf("parsed twice: %s", diff)
		}
	})
}
