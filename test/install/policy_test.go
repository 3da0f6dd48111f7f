package install

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/freshmesh/freshmesh/pkg/inject"
)

// rig has both ways to inject.
type rig struct {
	mutating, validating *policy
	config               inject.Config
}

func newRig(t *testing.T) *rig {
	t.Helper()
	objects := file(t, "injection/policy.yaml")
	param := one[*corev1.ConfigMap](t, file(t, "injection/config.yaml"))
	config, err := inject.ConfigOf(param.Data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(inject.DefaultConfig(), config); diff != "" {
		t.Errorf("the defaults of xds-server inject are not those of config.yaml (-default +config.yaml):\n%s", diff)
	}
	return &rig{
		mutating:   compileMutating(t, one[*admissionregistrationv1.MutatingAdmissionPolicy](t, objects), param),
		validating: compileValidating(t, one[*admissionregistrationv1.ValidatingAdmissionPolicy](t, objects)),
		config:     config,
	}
}

// byCommand gives the pod as `xds-server inject` makes it, read back strictly.
func (r *rig) byCommand(pod *corev1.Pod) (*corev1.Pod, error) {
	text, err := yaml.Marshal(pod)
	if err != nil {
		return nil, err
	}
	result, err := inject.Documents(text, r.config)
	if err != nil {
		return nil, err
	}
	o, _, err := strict.Decode(result.Text, nil, nil)
	if err != nil {
		return nil, err
	}
	return o.(*corev1.Pod), nil
}

// fatal is what *testing.T and *rapid.T have in common.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// same fails unless both ways agree: on the pod, or that it is refused (nil).
func (r *rig) same(t fatal, test *testing.T, pod *corev1.Pod) (made *corev1.Pod) {
	t.Helper()
	for _, byReflection := range []bool{false, true} {
		r.mutating.byReflection, r.validating.byReflection = byReflection, byReflection
		made = r.agreed(t, test, pod)
	}
	return made
}

func (r *rig) agreed(t fatal, test *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	refusals, err := r.validating.refusals(test.Context(), pod)
	if err != nil {
		t.Fatalf("validating policy: %v", err)
	}
	want, commandErr := r.byCommand(pod)
	if (commandErr != nil) != (len(refusals) > 0) {
		t.Fatalf("the command says: %v\nthe policy says: %q", commandErr, refusals)
	}
	got, err := r.mutating.mutate(test.Context(), pod)
	if err != nil {
		t.Fatalf("mutating policy: %v", err)
	}
	if commandErr != nil {
		for _, refusal := range refusals {
			// What is wrong is named by both.
			if field, _, _ := strings.Cut(refusal, "]"); !strings.Contains(commandErr.Error(), field) && !strings.Contains(refusal, "] or [") {
				t.Fatalf("the policy says %q, the command %v", refusal, commandErr)
			}
		}
		return nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the policy makes another pod than the command (-command +policy):\n%s", diff)
	}
	again, err := r.mutating.mutate(test.Context(), got)
	if err != nil {
		t.Fatalf("mutating policy, again: %v", err)
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Fatalf("the policy changes its own pod (-once +twice):\n%s", diff)
	}
	return got
}

func pod(edit ...func(*corev1.Pod)) *corev1.Pod {
	grace := int64(30)
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []corev1.Container{{Name: "web", Image: "web"}},
		},
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

func annotated(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			p.Annotations["freshmesh.dev/"+pairs[i]] = pairs[i+1]
		}
	}
}

// TestSamePod: what the documentation says of a pod, by both ways.
func TestSamePod(t *testing.T) {
	r := newRig(t)
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		// init are the names of the init containers afterwards, preStops the paths of the barriers.
		init, preStops []string
	}{
		{"plain", pod(), []string{"freshmesh-proxy"}, []string{"/drain?timeout=15s"}},
		{
			"init containers follow", pod(func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "a"}, {Name: "b"}} }),
			[]string{"freshmesh-proxy", "a", "b"},
			[]string{"/drain?timeout=15s"},
		},
		{
			"long grace period", pod(func(p *corev1.Pod) { *p.Spec.TerminationGracePeriodSeconds = 61 }),
			[]string{"freshmesh-proxy"},
			[]string{"/drain?timeout=30s"},
		},
		{
			"very long grace period", pod(func(p *corev1.Pod) { *p.Spec.TerminationGracePeriodSeconds = 5000 }),
			[]string{"freshmesh-proxy"},
			[]string{"/drain?timeout=600s"},
		},
		{
			"no grace period", pod(func(p *corev1.Pod) { *p.Spec.TerminationGracePeriodSeconds = 0 }),
			[]string{"freshmesh-proxy"},
			[]string{"/drain?timeout=0s"},
		},
		{
			"no grace period said", pod(func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = nil }),
			[]string{"freshmesh-proxy"},
			[]string{"/drain?timeout=15s"},
		},
		{"annotated timeout", pod(annotated("drain-timeout", "7s")), []string{"freshmesh-proxy"}, []string{"/drain?timeout=7s"}},
		{
			"redirected", pod(annotated("redirect", "enabled", "skip-outbound-ports", "5432,6379", "skip-uids", "0,1001")),
			[]string{"freshmesh-proxy", "freshmesh-redirect"},
			[]string{"/drain?timeout=15s"},
		},
		{
			"all annotations", pod(annotated("redirect", "disabled", "inject", "enabled", "proxy-image", "x:1", "proxy-cpu", "0.05", "proxy-memory", "64Mi",
				"proxy-memory-limit", "1Gi", "proxy-log-level", "debug", "listen", "127.0.0.1:5432=db.default.svc.cluster.local:5432")),
			[]string{"freshmesh-proxy"},
			[]string{"/drain?timeout=15s"},
		},
		{"preStop of its own", pod(func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers,
				corev1.Container{Name: "own", Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}},
				corev1.Container{Name: "started", Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(1)}}}})
		}), []string{"freshmesh-proxy"}, []string{"/drain?timeout=15s", "/drain?timeout=15s"}},
		{
			"has the proxy", pod(func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "a"}, {Name: "freshmesh-proxy"}}
			}),
			[]string{"a", "freshmesh-proxy"},
			[]string{"/drain?timeout=15s"},
		},
		{
			"has a volume of that name", pod(func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v"}, {Name: "freshmesh-state"}} }),
			[]string{"freshmesh-proxy"},
			[]string{"/drain?timeout=15s"},
		},
		{"opted out by label", pod(func(p *corev1.Pod) { p.Labels = map[string]string{"freshmesh.dev/inject": "disabled"} }), nil, nil},
		{"opted out by annotation", pod(annotated("inject", "disabled")), nil, nil},
		{"host network", pod(func(p *corev1.Pod) { p.Spec.HostNetwork = true }), nil, nil},
		{"Windows", pod(func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }), nil, nil},
		{"Linux", pod(func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Linux} }), []string{"freshmesh-proxy"}, []string{"/drain?timeout=15s"}},
		{"static", pod(func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"} }), nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := r.same(t, t, test.pod)
			if got == nil {
				t.Fatal("refused")
			}
			var init, preStops []string
			for _, c := range got.Spec.InitContainers {
				init = append(init, c.Name)
			}
			for _, c := range got.Spec.Containers {
				if l := c.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.HTTPGet != nil {
					preStops = append(preStops, l.PreStop.HTTPGet.Path)
				}
			}
			if diff := cmp.Diff(test.init, init); diff != "" {
				t.Errorf("init containers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.preStops, preStops); diff != "" {
				t.Errorf("preStops (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRefused: a wrong annotation is refused by both, and the field is named.
func TestRefused(t *testing.T) {
	r := newRig(t)
	for name, value := range map[string]string{
		"inject": "false", "redirect": "yes", "drain-timeout": "1m", "proxy-image": "", "proxy-cpu": "much", "proxy-memory": "1 GB",
		"proxy-memory-limit": "", "proxy-log-level": "loud", "listen": "", "skip-outbound-ports": "0", "skip-inbound-ports": "80-90", "skip-uids": "root",
	} {
		if got := r.same(t, t, pod(annotated(name, value))); got != nil {
			t.Errorf("%s: %q is accepted", name, value)
		}
	}
	for _, value := range []string{
		" ", "a", "127.0.0.1=db", "127.0.0.1:5432", "127.0.0.1:5432=", "127.0.0.1:65536=db", "1270.0.0.1:1=db", "here:1=db", ":1=db,udp", ":1=db,http,proxy", ":1=db :2",
		"[::1:1=db", "[::g]:1=db", "[1.2.3.4]:1=db", "[::ffff:1.2.3.4]:1=db", "[::1%eth0]:1=db",
	} {
		if got := r.same(t, t, pod(annotated("listen", value))); got != nil {
			t.Errorf("listen: %q is accepted", value)
		}
	}
	if got := r.same(t, t, pod(func(p *corev1.Pod) { p.Labels = map[string]string{"freshmesh.dev/inject": "false"} })); got != nil {
		t.Error("a wrong label is accepted")
	}
}

// TestSameForAll: whatever the pod, both ways make the same of it.
func TestSameForAll(t *testing.T) {
	r := newRig(t)
	rapid.Check(t, func(rt *rapid.T) { r.same(rt, t, drawPod(rt)) })
}

func drawPod(rt *rapid.T) *corev1.Pod {
	p := pod()
	*p.Spec.TerminationGracePeriodSeconds = rapid.Int64Range(0, 2000).Draw(rt, "grace")
	p.Spec.HostNetwork = rapid.IntRange(0, 9).Draw(rt, "host network") == 0
	p.Spec.Containers = nil
	for i := range rapid.IntRange(1, 4).Draw(rt, "containers") {
		c := corev1.Container{Name: string(rune('a' + i)), Lifecycle: drawLifecycle(rt)}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	for range rapid.IntRange(0, 3).Draw(rt, "init containers") {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
			Name: rapid.SampledFrom([]string{"x", "y", "z", "freshmesh-proxy", "freshmesh-redirect"}).Draw(rt, "init container"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(rt, "volumes") {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: rapid.SampledFrom([]string{"v", "w", "freshmesh-state"}).Draw(rt, "volume")})
	}
	words := []string{"enabled", "disabled", "", "7s", "600s", "601s", "1.5s", "info", "off", "10m", "64Mi", "1e3", "80", "80,443", "0", "65536", "01", "4294967294", "4294967295", "a", "-1", "80, 81", ":80=a", "[::1]:1=[::2]:80,http 127.0.0.1:65535=b,tcp,proxy", ":1=a,x"}
	for range rapid.IntRange(0, 4).Draw(rt, "annotations") {
		name := rapid.SampledFrom([]string{
			"inject", "redirect", "drain-timeout", "proxy-image", "proxy-cpu", "proxy-memory", "proxy-memory-limit", "proxy-log-level",
			"listen", "skip-outbound-ports", "skip-inbound-ports", "skip-uids", "other",
		}).Draw(rt, "annotation")
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations["freshmesh.dev/"+name] = rapid.SampledFrom(words).Draw(rt, "value")
	}
	return p
}

func drawLifecycle(rt *rapid.T) *corev1.Lifecycle {
	handler := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}
	switch rapid.IntRange(0, 4).Draw(rt, "lifecycle") {
	case 0:
		return &corev1.Lifecycle{PreStop: handler}
	case 1:
		return &corev1.Lifecycle{PostStart: handler}
	case 2:
		return &corev1.Lifecycle{PostStart: handler, PreStop: handler}
	}
	return nil
}
