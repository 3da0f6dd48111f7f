package inject

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const service = `# A comment that stays.
apiVersion: v1
kind: Service
metadata: {name: web,   namespace: default}
spec:
  ports: [{port: 80}]   # and so does this
`

func inject(t *testing.T, in string) Result {
	t.Helper()
	out, err := Documents([]byte(in), DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// into decodes strictly: what we write are known fields.
func into[T any](t *testing.T, text []byte) T {
	t.Helper()
	var o T
	if err := yaml.UnmarshalStrict(text, &o); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return o
}

func judge(t *testing.T, spec corev1.PodSpec) {
	t.Helper()
	if len(spec.InitContainers) == 0 || spec.InitContainers[0].Name != proxyContainer || *spec.InitContainers[0].RestartPolicy != corev1.ContainerRestartPolicyAlways {
		t.Errorf("the proxy is not the first init container: %+v", spec.InitContainers)
	}
	if l := spec.Containers[0].Lifecycle; l == nil || l.PreStop == nil || l.PreStop.HTTPGet == nil || l.PreStop.HTTPGet.Path != "/drain?timeout=15s" || l.PreStop.HTTPGet.Port.IntValue() != 15021 {
		t.Errorf("no barrier: %+v", l)
	}
}

// TestKinds: whatever makes pods is changed where it has them.
func TestKinds(t *testing.T) {
	const template = "{metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web}]}}"
	workload := func(version, kind string) string {
		return "apiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: web}\nspec: {template: " + template + "}\n"
	}
	judge(t, into[corev1.Pod](t, inject(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web}]}\n").Text).Spec)
	judge(t, into[corev1.PodTemplate](t, inject(t, "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: web}\ntemplate: "+template+"\n").Text).Template.Spec)
	judge(t, into[appsv1.Deployment](t, inject(t, workload("apps/v1", "Deployment")).Text).Spec.Template.Spec)
	judge(t, into[appsv1.StatefulSet](t, inject(t, workload("apps/v1", "StatefulSet")).Text).Spec.Template.Spec)
	judge(t, into[appsv1.DaemonSet](t, inject(t, workload("apps/v1", "DaemonSet")).Text).Spec.Template.Spec)
	judge(t, into[appsv1.ReplicaSet](t, inject(t, workload("apps/v1", "ReplicaSet")).Text).Spec.Template.Spec)
	judge(t, into[batchv1.Job](t, inject(t, workload("batch/v1", "Job")).Text).Spec.Template.Spec)
	judge(t, into[corev1.ReplicationController](t, inject(t, workload("v1", "ReplicationController")).Text).Spec.Template.Spec)
	cron := into[batchv1.CronJob](t, inject(t, "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: web}\nspec: {schedule: '* * * * *', jobTemplate: {spec: {template: "+template+"}}}\n").Text)
	judge(t, cron.Spec.JobTemplate.Spec.Template.Spec)

	list := inject(t, `{"apiVersion": "v1", "kind": "List", "items": [
		{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}},
		{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}, "spec": {"containers": [{"name": "web"}]}}]}`)
	items := into[struct {
		APIVersion, Kind string
		Items            []corev1.Pod
	}](t, list.Text).Items
	if len(items) != 2 || items[0].Kind != "Service" || len(items[0].Spec.InitContainers) > 0 {
		t.Errorf("%s", list.Text)
	}
	judge(t, items[1].Spec)
}

// TestTheRestStays: other documents come out byte for byte, and so does a workload with nothing to do.
func TestTheRestStays(t *testing.T) {
	const optedOut = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {freshmesh.dev/inject: disabled}}   # as it is\nspec: {containers: [{name: a}]}\n"
	const rollout = "--- \napiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {template: {spec: {containers: [{name: a}]}}}\n"
	for _, in := range []string{
		"", "\n", "# nothing\n", service, service + "---\r\n" + service, optedOut, rollout, service + optedOut + rollout + "---\n", "---\n---\n- a\n- b\n", "--- text\n",
	} {
		if out := inject(t, in); string(out.Text) != in {
			t.Errorf("%q became %q", in, out.Text)
		}
	}
	out := inject(t, service+"---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a}]}\n"+optedOut)
	if text := string(out.Text); !strings.HasPrefix(text, service+"---\n") || !strings.HasSuffix(text, optedOut) {
		t.Errorf("%s", text)
	}
	want := []string{"Pod a: injected", "Pod a: not injected: freshmesh.dev/inject is disabled"}
	if diff := cmp.Diff(want, out.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// TestFieldsStay: what the typed form does not know, and numbers that a float would spoil, stay.
func TestFieldsStay(t *testing.T) {
	out := string(inject(t, `apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  futureField: {x: [1, 2.5]}
  securityContext: {runAsUser: 1000680000}
  activeDeadlineSeconds: 9007199254740993
  containers: [{name: a, newerField: yes please}]
`).Text)
	for _, want := range []string{"futureField:\n    x:\n    - 1\n    - 2.5\n", "runAsUser: 1000680000\n", "9007199254740993\n", "newerField: yes please\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

// TestErrors: an error names the document, the object and the field, and all of them are told.
func TestErrors(t *testing.T) {
	in := service + `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    metadata: {annotations: {freshmesh.dev/drain-timeout: soon, freshmesh.dev/proxy-cpu: a lot, freshmesh.dev/listen: "127.0.0.1:80=web:80,http 127.0.0.1=db"}}
    spec: {containers: [{name: web}]}
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {hostNetwork: "yes", containers: [{name: a}]}
---
apiVersion: batch/v1
kind: Job
metadata: {generateName: j-}
spec: {}
---
apiVersion: v1
kind: Pod
metadata: {name: empty}
spec: {containers: []}
---
a: b: c
---
apiVersion: v1
kind: List
items: [{apiVersion: v1, kind: Pod, metadata: {name: inner}}]
`
	out, err := Documents([]byte(in), DefaultConfig())
	if err == nil {
		t.Fatal("accepted")
	}
	want := `document 2: Deployment shop/web: spec.template.metadata.annotations[freshmesh.dev/drain-timeout]: "soon": want whole seconds from 0s to 600s, such as 25s
document 2: Deployment shop/web: spec.template.metadata.annotations[freshmesh.dev/proxy-cpu]: "a lot": want a quantity such as 50m or 64Mi
document 2: Deployment shop/web: spec.template.metadata.annotations[freshmesh.dev/listen]: "127.0.0.1" is not an address such as 127.0.0.1:15000 or :15000
document 3: Pod a: spec.hostNetwork: cannot unmarshal string into bool
document 4: Job j-*: spec.template: missing, or no object
document 5: Pod empty: spec.containers: empty
document 6: no YAML: line 2: mapping values are not allowed in this context
document 7: items[0]: Pod inner: spec: missing, or no object`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(out.Text) > 0 {
		t.Error("documents were given all the same")
	}
}

// TestUnread: what of ours has no effect is told, with its object and field, and nothing is refused for it.
func TestUnread(t *testing.T) {
	out := inject(t, `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {freshmesh.dev/redirect: enabled, other: x}, labels: {freshmesh.dev/inject: disabled}}
spec:
  template:
    metadata: {annotations: {freshmesh.dev/lisen: ":80=web:80", freshmesh.dev/drain-timeout: 7s}, labels: {freshmesh.dev/injct: disabled, freshmesh.dev/inject: enabled}}
    spec: {containers: [{name: web}]}
---
apiVersion: v1
kind: Pod
metadata: {name: a, annotations: {freshmesh.dev/inject: disabled, freshmesh.dev/proxy: x}}
spec: {containers: [{name: a}]}
---
apiVersion: v1
kind: Service
metadata: {name: a, annotations: {freshmesh.dev/lb-policy: round-robin}}
`)
	const there = "no such annotation; there are drain-timeout, inject, listen, proxy-cpu, proxy-image, proxy-log-level, proxy-memory, proxy-memory-limit, redirect, skip-inbound-ports, skip-outbound-ports, skip-uids"
	want := []string{
		"Deployment shop/web: metadata.annotations[freshmesh.dev/redirect]: without effect here: those of pods stand in spec.template.metadata",
		"Deployment shop/web: metadata.labels[freshmesh.dev/inject]: without effect here: those of pods stand in spec.template.metadata",
		"Deployment shop/web: spec.template.metadata.annotations[freshmesh.dev/lisen]: " + there,
		"Deployment shop/web: spec.template.metadata.labels[freshmesh.dev/injct]: no such label; there is inject",
		"Pod a: metadata.annotations[freshmesh.dev/proxy]: " + there,
	}
	if diff := cmp.Diff(want, out.Warnings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(out.Notes) != 2 || out.Notes[0] != "Deployment shop/web: injected" {
		t.Errorf("notes %q", out.Notes)
	}
}

// TestIdempotent: a second pass changes nothing, byte for byte.
func TestIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := corev1.Pod{}
		p.APIVersion, p.Kind, p.Name = "v1", "Pod", "a"
		p.Annotations = map[string]string{"freshmesh.dev/redirect": rapid.SampledFrom([]string{Enabled, disabled}).Draw(t, "redirect")}
		for range rapid.IntRange(1, 3).Draw(t, "containers") {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: rapid.StringMatching("[a-z]{1,5}").Draw(t, "name")})
		}
		text, err := yaml.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		once, err := Documents(append([]byte(service+"---\n"), text...), DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		twice, err := Documents(once.Text, DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(once.Text), string(twice.Text)); diff != "" {
			t.Fatalf("(-once +twice):\n%s", diff)
		}
		if twice.Notes[0] != "Pod a: has the proxy already" {
			t.Fatalf("%q", twice.Notes)
		}
	})
}

// FuzzDocuments: no input breaks it, and what it accepts it accepts again unchanged.
func FuzzDocuments(f *testing.F) {
	f.Add([]byte(service + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a}]}\n"))
	f.Add([]byte("---\n---\n{}\n--- |\n a\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		once, err := Documents(in, DefaultConfig())
		if err != nil {
			return
		}
		twice, err := Documents(once.Text, DefaultConfig())
		if err != nil {
			t.Fatalf("%v in %q, made of %q", err, once.Text, in)
		}
		if !bytes.Equal(once.Text, twice.Text) {
			t.Errorf("%q, then %q", once.Text, twice.Text)
		}
	})
}

func TestMainCommand(t *testing.T) {
	dir := t.TempDir()
	pod := filepath.Join(dir, "pod.yaml")
	configMap := filepath.Join(dir, "config.yaml")
	for name, text := range map[string]string{
		pod:       "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, lifecycle: {preStop: {sleep: {seconds: 1}}}}]}\n",
		configMap: "apiVersion: v1\nkind: ConfigMap\ndata: {image: 'from:map', xds-address: 'x:1', cluster-domain: c, log-level: info, cpu: '1', memory: 1Gi, memory-limit: 1Gi}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		args           []string
		stdin          string
		code           int
		stdout, stderr string // parts
	}{
		{[]string{"-f", pod}, "", 0, "image: freshmesh/dataplane:dev", "Pod a: injected; a preStop of their own keep: a\n"},
		{[]string{"-f", pod, "-q", "--image", "other:1"}, "", 0, "image: other:1", ""},
		{[]string{"-f", "-"}, service, 0, service, ""},
		{[]string{"-f", pod, "--config-map", configMap, "--cpu=2", "-q"}, "", 0, "image: from:map", ""},
		{[]string{"-f", pod, "--config-map", configMap, "--image=flag:1", "-q"}, "", 0, "image: flag:1", ""},
		{
			[]string{"-f", "-", "-q"},
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {freshmesh.dev/x: z}}\nspec: {containers: [{name: a}]}\n", 0,
			"freshmesh-proxy", "xds-server inject: warning: Pod a: metadata.labels[freshmesh.dev/x]: no such label",
		},
		{[]string{"--help"}, "", 0, "Usage: xds-server inject", ""},
		{nil, "", 2, "", "give -f FILE"},
		{[]string{"-f", pod, "more"}, "", 2, "", `unexpected argument "more"`},
		{[]string{"-f", pod, "--cpu", "x"}, "", 2, "", `--cpu: "x": want a quantity`},
		{[]string{"-f", pod, "--config-map", pod}, "", 2, "", "unknown field"},
		{[]string{"-f", filepath.Join(dir, "none")}, "", 1, "", "no such file"},
		{[]string{"-f", "-"}, "a: b: c\n", 1, "", "xds-server inject: -: document 1: no YAML"},
	} {
		var stdout, stderr bytes.Buffer
		code := Main(test.args, strings.NewReader(test.stdin), &stdout, &stderr)
		if code != test.code || !strings.Contains(stdout.String(), test.stdout) || !strings.Contains(stderr.String(), test.stderr) || (test.stderr == "") != (stderr.Len() == 0) {
			t.Errorf("%q: code %d, stdout %q, stderr %q", test.args, code, &stdout, &stderr)
		}
	}
}

func TestConfigMap(t *testing.T) {
	_, err := ConfigOf(map[string]string{"image": "", "cpu": "x", "imgae": "y", "xds-address": "a:1", "cluster-domain": "c", "log-level": "loud", "memory": "1"})
	want := "data.image: must not be empty\ndata.log-level: \"loud\": want trace, debug, info, warn, error or off\n" +
		"data.cpu: \"x\": want a quantity such as 50m or 64Mi\ndata.memory-limit: missing\ndata.imgae: unknown key"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
