package install

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	psaapi "k8s.io/pod-security-admission/api"
	psapolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/freshmesh/freshmesh/pkg/config"
	"github.com/freshmesh/freshmesh/pkg/kube"
)

// kustomized gives what `kubectl apply -k` would apply.
func kustomized(t *testing.T, dir string) []runtime.Object {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, dir, text)
}

// TestRights: the ClusterRole has what the code uses, and nothing more.
func TestRights(t *testing.T) {
	got := one[*rbacv1.ClusterRole](t, kustomized(t, manifests)).Rules
	want := kube.Rules()
	for _, rules := range [][]rbacv1.PolicyRule{got, want} {
		slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int { return cmp.Compare(a.Resources[0], b.Resources[0]) })
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-code +manifest):\n%s", diff)
	}
}

// TestTheyFitTogether: what refers to something else by a name or a label meets it.
func TestTheyFitTogether(t *testing.T) {
	objects := kustomized(t, manifests)
	deployment := one[*appsv1.Deployment](t, objects)
	template := deployment.Spec.Template
	if r := *deployment.Spec.Replicas; r != 2 {
		t.Errorf("%d replicas", r)
	}
	selected := map[string]map[string]string{
		"Deployment":          deployment.Spec.Selector.MatchLabels,
		"PodDisruptionBudget": one[*policyv1.PodDisruptionBudget](t, objects).Spec.Selector.MatchLabels,
		"NetworkPolicy":       one[*networkingv1.NetworkPolicy](t, objects).Spec.PodSelector.MatchLabels,
		"affinity":            template.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector.MatchLabels,
		"spread":              template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	}
	ports := map[string]int32{}
	for _, p := range template.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	services := map[string]*corev1.Service{}
	for _, o := range objects {
		s, ok := o.(*corev1.Service)
		if !ok {
			continue
		}
		services[s.Name] = s
		selected["Service "+s.Name] = s.Spec.Selector
		for _, p := range s.Spec.Ports {
			if ports[p.TargetPort.StrVal] != p.Port {
				t.Errorf("Service %s: port %d leads to %q, which is %d", s.Name, p.Port, p.TargetPort.StrVal, ports[p.TargetPort.StrVal])
			}
		}
	}
	for name, selector := range selected {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(template.Labels)) {
			t.Errorf("%s selects %v, the pods are %v", name, selector, template.Labels)
		}
	}
	if s := services["xds-server-headless"]; s == nil || s.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Error("no headless service xds-server-headless")
	}
	for name, probe := range map[string]*corev1.Probe{
		"/readyz": template.Spec.Containers[0].ReadinessProbe, "/livez": template.Spec.Containers[0].LivenessProbe,
	} {
		if probe.HTTPGet.Path != name || ports[probe.HTTPGet.Port.StrVal] != 18080 {
			t.Errorf("probe %v, want %s of the admin port", probe.HTTPGet, name)
		}
	}
	binding := one[*rbacv1.ClusterRoleBinding](t, objects)
	if account := one[*corev1.ServiceAccount](t, objects); binding.Subjects[0].Name != account.Name || template.Spec.ServiceAccountName != account.Name ||
		binding.RoleRef.Name != one[*rbacv1.ClusterRole](t, objects).Name {
		t.Error("the rights are not those of the pods' service account")
	}
}

// TestTheProgramTakesIt: the arguments are what xds-server takes.
func TestTheProgramTakesIt(t *testing.T) {
	args := one[*appsv1.Deployment](t, kustomized(t, manifests)).Spec.Template.Spec.Containers[0].Args
	c, result, err := config.LoadServer(args[1:], func(name string) (string, bool) { return "10.0.0.1", name == "KUBERNETES_SERVICE_HOST" })
	if err != nil || args[0] != "serve" || result.Action != config.Run || c.Source != config.InCluster || c.XDSAddress != ":18000" || c.AdminAddress != ":18080" {
		t.Errorf("%q: %+v, %v", args, c, err)
	}
}

// level gives the strictest level of the Pod Security Standards that a pod passes.
func level(t *testing.T, pod *corev1.Pod) psaapi.Level {
	t.Helper()
	evaluator, err := psapolicy.NewEvaluator(psapolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []psaapi.Level{psaapi.LevelRestricted, psaapi.LevelBaseline} {
		results := evaluator.EvaluatePod(psaapi.LevelVersion{Level: l, Version: psaapi.LatestVersion()}, &pod.ObjectMeta, &pod.Spec)
		result := psapolicy.AggregateCheckResults(results)
		if result.Allowed {
			return l
		}
		t.Logf("not %s: %s", l, result.ForbiddenDetail())
	}
	return psaapi.LevelPrivileged
}

// TestPodSecurity: what a namespace must allow, as docs/install.md says.
func TestPodSecurity(t *testing.T) {
	objects := kustomized(t, manifests)
	template := one[*appsv1.Deployment](t, objects).Spec.Template
	if l := level(t, &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}); l != psaapi.LevelRestricted {
		t.Errorf("xds-server is %s", l)
	}
	yes := true
	restricted := func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
		no := false
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	}
	r := newRig(t)
	if l := level(t, r.same(t, t, pod(restricted))); l != psaapi.LevelRestricted {
		t.Errorf("an injected pod is %s", l)
	}
	if l := level(t, r.same(t, t, pod(restricted, annotated("redirect", "enabled")))); l != psaapi.LevelPrivileged {
		t.Errorf("a redirected pod is %s: say so in docs/install.md", l)
	}
}

// TestOverlay: the kustomization that docs/install.md has people write gives their images.
func TestOverlay(t *testing.T) {
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "cat > mesh/kustomization.yaml <<EOF\n")
	overlay, _, ended := strings.Cut(rest, "EOF\n")
	if !ok || !ended {
		t.Fatal("docs/install.md has no kustomization")
	}
	dir := t.TempDir()
	base, err := filepath.Abs(manifests)
	if err != nil {
		t.Fatal(err)
	}
	if base, err = filepath.Rel(dir, base); err != nil {
		t.Fatal(err)
	}
	overlay = strings.ReplaceAll(overlay, "../configs/kubernetes", base)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	objects := kustomized(t, dir)
	if image := one[*appsv1.Deployment](t, objects).Spec.Template.Spec.Containers[0].Image; image != "registry.example/freshmesh/xds-server:v0.1.0" {
		t.Errorf("xds-server's image is %s", image)
	}
	if image := one[*corev1.ConfigMap](t, objects).Data["image"]; image != "registry.example/freshmesh/dataplane:v0.1.0" {
		t.Errorf("the proxy's image is %s", image)
	}
}
