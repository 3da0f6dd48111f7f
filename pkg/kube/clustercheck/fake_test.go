package clustercheck

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// fake is an API server that holds what it is told, by path, and answers reviews of rights.
type fake struct {
	t *testing.T
	// minor is of the version, behind how far its clock is.
	minor  string
	behind time.Duration
	// objects by path; a path that ends in a resource is a list.
	objects map[string]any
	// status answers a path instead.
	status map[string]int
	// denied are rights that nobody has, "list pods"; a user's own begin with its name: "USER list pods".
	denied map[string]bool
}

// groups has the resources of every group that the fake serves, as discovery tells them.
var groups = map[string][]string{
	"v1":                  {"services", "pods", "nodes", "namespaces"},
	"discovery.k8s.io/v1": {"endpointslices"},
	"admissionregistration.k8s.io/v1": {
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
	},
	"policy/v1":            {"poddisruptionbudgets"},
	"networking.k8s.io/v1": {"networkpolicies"},
}

func prefixOf(version string) string {
	if version == "v1" {
		return "/api/v1"
	}
	return "/apis/" + version
}

// newFake holds the install as it is shipped, with two ready replicas.
func newFake(t *testing.T) (*fake, string) {
	t.Helper()
	f := &fake{t: t, minor: "37", objects: map[string]any{}, status: map[string]int{}, denied: map[string]bool{}}
	for version, names := range groups {
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		f.objects[prefixOf(version)] = list
	}
	for _, dir := range []string{"control-plane", "injection"} {
		files, err := filepath.Glob("../../../configs/kubernetes/" + dir + "/*.yaml")
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, name := range files {
			if filepath.Base(name) != "kustomization.yaml" {
				f.apply(name)
			}
		}
	}
	f.put("apps/v1", "deployments", "freshmesh", "xds-server", func(o map[string]any) { o["status"] = map[string]any{"readyReplicas": 2} })
	pod := map[string]any{"metadata": map[string]any{"name": "xds-server-a"}, "status": map[string]any{"phase": "Running", "podIP": "127.0.0.1"}}
	f.objects["/api/v1/namespaces/freshmesh/pods"] = listOf("PodList", pod)
	f.objects["/api/v1/namespaces/freshmesh/pods/xds-server-a:18080/proxy/readyz"] = map[string]any{"ready": true}
	f.objects["/api/v1/namespaces"] = listOf("NamespaceList")
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server.URL
}

func listOf(kind string, items ...any) map[string]any {
	return map[string]any{"kind": kind, "apiVersion": "v1", "metadata": map[string]any{}, "items": items}
}

// apply holds the objects of a file.
func (f *fake) apply(name string) {
	f.t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		f.t.Fatal(err)
	}
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			f.t.Fatal(err)
		}
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(doc, nil, nil)
		if err != nil {
			f.t.Fatalf("%s: %v", name, err)
		}
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			f.t.Fatal(err)
		}
		m := o.(metav1.Object)
		version, kind := o.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
		f.objects[pathOf(version, plural(kind), m.GetNamespace(), m.GetName())] = tree
	}
}

func pathOf(version, resource, namespace, name string) string {
	path := prefixOf(version)
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + resource + "/" + name
}

// put changes an object that is held.
func (f *fake) put(version, resource, namespace, name string, edit func(map[string]any)) {
	f.t.Helper()
	o, ok := f.objects[pathOf(version, resource, namespace, name)].(map[string]any)
	if !ok {
		f.t.Fatalf("no %s %s", resource, name)
	}
	edit(o)
}

func (f *fake) remove(version, resource, namespace, name string) {
	f.put(version, resource, namespace, name, func(map[string]any) {})
	delete(f.objects, pathOf(version, resource, namespace, name))
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", time.Now().Add(-f.behind).UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, o any) {
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(o); err != nil {
			f.t.Error(err)
		}
	}
	refuse := func(code int, reason metav1.StatusReason) {
		answer(code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "not for you"})
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch code := f.status[path]; {
	case code != 0:
		refuse(code, metav1.StatusReasonForbidden)
	case path == "/version":
		answer(http.StatusOK, map[string]string{"major": "1", "minor": f.minor, "gitVersion": "v1." + f.minor + ".0"})
	case r.Method == http.MethodPost && strings.HasPrefix(path, "/apis/authorization.k8s.io/v1/"):
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			f.t.Error(err)
		}
		what := review.Spec.ResourceAttributes.Verb + " " + review.Spec.ResourceAttributes.Resource
		review.Status.Allowed = !f.denied[what] && !f.denied[review.Spec.User+" "+what]
		answer(http.StatusCreated, review)
	case f.objects[path] != nil:
		answer(http.StatusOK, f.objects[path])
	default:
		refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}
