package install

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const chart = manifests + "/chart"

// rendered gives what `helm install -n NAMESPACE` would apply.
func rendered(t *testing.T, namespace string, values map[string]any) []runtime.Object {
	t.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: "freshmesh", Namespace: namespace, IsInstall: true}
	all, err := util.ToRenderValues(c, values, release, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for name, content := range files {
		if path.Ext(name) == ".yaml" {
			text.WriteString("---\n" + content + "\n")
		}
	}
	return decode(t, "chart", []byte(text.String()))
}

// TestSameAsKustomize: with its defaults the chart renders what kustomize
// builds, but for the namespace: Helm's has to exist before.
func TestSameAsKustomize(t *testing.T) {
	want := slices.DeleteFunc(kustomized(t, manifests), func(o runtime.Object) bool {
		_, ok := o.(*corev1.Namespace)
		return ok
	})
	if diff := cmp.Diff(want, rendered(t, "freshmesh", nil)); diff != "" {
		t.Errorf("(-kustomize +chart):\n%s", diff)
	}
}

func TestLint(t *testing.T) {
	for _, m := range lint.RunAll(chart, nil, "freshmesh").Messages {
		if text := m.Error(); !strings.Contains(text, "icon is recommended") {
			t.Error(text)
		}
	}
}

// TestValues: every value has its effect, and all of it is still what the API takes.
func TestValues(t *testing.T) {
	objects := rendered(t, "mesh", map[string]any{
		"image": "registry.example/xds-server:1", "imagePullSecrets": []any{map[string]any{"name": "pull"}}, "replicas": 3,
		"clusterDomain": "example.org", "logLevel": "debug", "extraArgs": []any{"--pprof"},
		"resources":    map[string]any{"requests": map[string]any{"cpu": "1"}},
		"nodeSelector": map[string]any{"a": "b"}, "tolerations": []any{map[string]any{"key": "k", "operator": "Exists"}},
		"priorityClassName": "system-cluster-critical", "networkPolicy": map[string]any{"enabled": false},
		"injection": map[string]any{"policy": false, "image": "registry.example/dataplane:1", "logLevel": "warn", "cpu": "1", "memory": "1Gi", "memoryLimit": "2Gi"},
	})
	var names []string
	for _, o := range objects {
		names = append(names, nameOf(o))
	}
	want := []string{
		"ClusterRole freshmesh-xds-server", "ClusterRoleBinding freshmesh-xds-server", "ConfigMap mesh/injection", "Deployment mesh/xds-server",
		"PodDisruptionBudget mesh/xds-server", "Service mesh/xds-server", "Service mesh/xds-server-headless", "ServiceAccount mesh/xds-server",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	deployment := one[*appsv1.Deployment](t, objects)
	spec := deployment.Spec.Template.Spec
	container := spec.Containers[0]
	wantArgs := []string{"serve", "--xds-address=:18000", "--admin-address=:18080", "--cluster-domain=example.org", "--log-level=debug", "--log-format=json", "--pprof"}
	if diff := cmp.Diff(wantArgs, container.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if *deployment.Spec.Replicas != 3 || container.Image != "registry.example/xds-server:1" || spec.ImagePullSecrets[0].Name != "pull" || spec.NodeSelector["a"] != "b" ||
		spec.Tolerations[0].Key != "k" || spec.PriorityClassName != "system-cluster-critical" || container.Resources.Requests.Cpu().String() != "1" {
		t.Errorf("%+v", spec)
	}
	wantData := map[string]string{
		"image": "registry.example/dataplane:1", "xds-address": "xds-server-headless.mesh.svc.example.org:18000", "cluster-domain": "example.org",
		"log-level": "warn", "cpu": "1", "memory": "1Gi", "memory-limit": "2Gi",
	}
	if diff := cmp.Diff(wantData, one[*corev1.ConfigMap](t, objects).Data); diff != "" {
		t.Errorf("injection (-want +got):\n%s", diff)
	}
}

// TestUnknownValue: a misspelt value is an error, not a default.
func TestUnknownValue(t *testing.T) {
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: "freshmesh", Namespace: "freshmesh"}
	if _, err := util.ToRenderValues(c, map[string]any{"replica": 3}, release, common.DefaultCapabilities); err == nil || !strings.Contains(err.Error(), "replica") {
		t.Errorf("got %v", err)
	}
}
