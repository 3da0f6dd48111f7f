package install

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/freshmesh/freshmesh/test/cluster/app/report"
	"github.com/freshmesh/freshmesh/test/cluster/build"
	"github.com/freshmesh/freshmesh/test/cluster/rig"
)

const (
	// commandTime bounds one command: the longest wait for two replicas that are replaced one by one.
	commandTime = 6 * time.Minute
	patience    = 3 * time.Minute
)

// reader is somebody who follows the page, in a directory with a copy of configs.
type reader struct {
	*rig.Rig
	t    *testing.T
	page page
	dir  string
	helm bool
}

// TestPage follows the page twice, by kustomize and by Helm: install, inject, upgrade, remove. With -short
// it leaves out Helm, and the upgrade, in which two replicas are replaced one by one.
func TestPage(t *testing.T) {
	r := &reader{Rig: rig.ForTest(t, rig.Config{Nodes: 3}), t: t, dir: t.TempDir()}
	root, err := build.Root()
	if err != nil {
		t.Fatal(err)
	}
	r.page = readPage(t, filepath.Join(root, "docs", "install.md"))
	// "Images" needs a registry: test/image builds them. "What is installed" and others have none.
	r.page.takes(t, map[string]int{"Images": 1, "Install": 3, "Inject": 1, "By command": 1, "Upgrade": 1, "Removal": 1})
	if t.Failed() {
		t.FailNow()
	}
	if err := os.CopyFS(filepath.Join(r.dir, "configs"), os.DirFS(filepath.Join(root, "configs"))); err != nil {
		t.Fatal(err)
	}
	r.write(".kube/config", r.kubeconfig())
	r.write("web.yaml", server)
	t.Run("Kustomize", func(t *testing.T) { r.on(t, false).follow() })
	if !testing.Short() {
		t.Run("Helm", func(t *testing.T) { r.on(t, true).follow() })
	}
}

// The reader has a client that asks a server all the time through a proxy of its own, once it has one.
const (
	client = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: app
        image: app
        args: [load, --host=by-command.shop.svc.cluster.local, --kinds=http, --rate=5]
        readinessProbe: {httpGet: {port: 9900, path: /stats}, periodSeconds: 1}
`
	server = `apiVersion: apps/v1
kind: Deployment
metadata: {name: by-command, namespace: shop}
spec:
  selector: {matchLabels: {app: by-command}}
  template:
    metadata: {labels: {app: by-command}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
      - {name: app, image: app, args: [serve], readinessProbe: {httpGet: {port: 8080, path: /ready}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {name: by-command, namespace: shop}
spec: {selector: {app: by-command}, ports: [{port: 8080, appProtocol: http}]}
`
)

func (r *reader) on(t *testing.T, helm bool) *reader {
	of := *r
	of.t, of.helm = t, helm
	return &of
}

// follow follows the page.
func (r *reader) follow() {
	r.t.Helper()
	r.run("kubectl create namespace shop")
	r.apply(client)

	way := 0
	if r.helm {
		way = 1
	}
	r.block("Install", way)
	r.block("Install", 2)
	r.block("Inject", 0)
	r.deployed("web", 1)
	r.block("By command", 0)
	r.deployed("by-command", 1)
	r.asks()
	if !testing.Short() {
		r.upgrade()
	}
	r.run("kubectl apply -f web.yaml") // the page: documents made by inject have to be applied without it
	r.block("Removal", 0)
	r.deployed("web", 0)
	r.deployed("by-command", 0)
	r.run("kubectl delete namespace shop")
	for _, kind := range []string{"clusterrole", "clusterrolebinding", "mutatingadmissionpolicy", "validatingadmissionpolicy", "crd", "namespace"} {
		if left := r.run("kubectl get " + kind + " -o name --ignore-not-found"); strings.Contains(left, "freshmesh") {
			r.t.Errorf("left behind: %s", left)
		}
	}
}

// upgrade takes the next version.
func (r *reader) upgrade() {
	r.t.Helper()
	if r.helm {
		r.run("helm upgrade freshmesh configs/kubernetes/chart -n freshmesh --reuse-values --set image=registry.example/freshmesh/xds-server:v0.1.1")
	} else {
		r.run("sed -i s/v0.1.0/v0.1.1/ mesh/kustomization.yaml")
	}
	r.block("Upgrade", 0)
	if image := r.image(); !strings.HasSuffix(image, "/xds-server:v0.1.1") {
		r.t.Errorf("upgraded to %s", image)
	}
	r.deployed("web", 1)
	r.deployed("by-command", 1)
	r.asks()
}

// block runs the commands of one block of the page.
func (r *reader) block(heading string, n int) {
	r.t.Helper()
	for _, c := range commands(r.page[heading][n], r.helm) {
		switch {
		case c == "helm upgrade, with the new tags":
			// Done by now: the page leaves the values to the reader.
		case strings.HasPrefix(c, "kubectl get pods -A "):
			// The page: it must print nothing before the next command.
			rig.Until(r.t, patience, "no pod has the proxy", func(context.Context) (bool, any) {
				out := r.run(c)
				return out == "", out
			})
		default:
			r.run(c)
		}
	}
}

// run runs one command as a shell does, and gives what it wrote.
func (r *reader) run(command string) string {
	r.t.Helper()
	if inside, ok := strings.CutPrefix(command, "kubectl -n freshmesh exec deployment/xds-server -- "); ok {
		return r.runInPod(inside)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), commandTime)
	defer cancel()
	// So that nothing fails in silence before a pipe.
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "HOME="+r.dir, "KUBECONFIG=", "PATH="+strings.Join(
		[]string{r.Programs.Kubernetes, r.Programs.Own, os.Getenv(helmDir), os.Getenv("PATH")}, ":"))
	began := time.Now()
	text, err := cmd.CombinedOutput()
	r.t.Logf("%v: $ %s\n%s", time.Since(began).Round(time.Millisecond), command, text)
	if err != nil {
		r.t.Fatalf("%s: %v", command, err)
	}
	return string(text)
}

// runInPod stands for kubectl exec, which this cluster's kubelet does not play: the command runs in a pod of
// the same image in the same namespace.
func (r *reader) runInPod(command string) string {
	r.t.Helper()
	no, yes := false, true
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "exec-"},
		Spec: v1.PodSpec{
			RestartPolicy:                v1.RestartPolicyNever,
			AutomountServiceAccountToken: &no,
			SecurityContext:              &v1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}},
			Containers: []v1.Container{{
				Name: "exec", Image: r.image(), Args: strings.Fields(command)[1:],
				SecurityContext: &v1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}}},
			}},
		},
	}
	pods := r.Admin.CoreV1().Pods("freshmesh")
	made, err := pods.Create(r.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	var phase v1.PodPhase
	rig.Until(r.t, commandTime, command+" ended", func(ctx context.Context) (bool, any) {
		now, err := pods.Get(ctx, made.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		phase = now.Status.Phase
		return phase == v1.PodSucceeded || phase == v1.PodFailed, phase
	})
	text, err := os.ReadFile(filepath.Join(r.Dir, "pods", string(made.UID), "exec.log"))
	r.t.Logf("$ %s\n%s", command, text)
	if err != nil || phase != v1.PodSucceeded {
		r.t.Fatalf("%s: %s %v", command, phase, err)
	}
	return string(text)
}

func (r *reader) apply(manifests string) {
	r.t.Helper()
	if err := r.Apply(r.t.Context(), "", []byte(manifests), false); err != nil {
		r.t.Fatal(err)
	}
}

// image is what the xds-servers are to run.
func (r *reader) image() string {
	r.t.Helper()
	d, err := r.Admin.AppsV1().Deployments("freshmesh").Get(r.t.Context(), "xds-server", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return d.Spec.Template.Spec.Containers[0].Image
}

// deployed waits until the pods of a workload are ready and new, with as many proxies in each.
func (r *reader) deployed(name string, proxies int) {
	r.t.Helper()
	rig.Until(r.t, patience, fmt.Sprintf("%s has pods with %d proxies", name, proxies), func(ctx context.Context) (bool, any) {
		d, err := r.Admin.AppsV1().Deployments("shop").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		pods, err := r.Admin.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil || len(pods.Items) != int(*d.Spec.Replicas) || d.Status.ObservedGeneration < d.Generation {
			return false, fmt.Sprint(err, len(pods.Items), " pods")
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; len(p.Spec.InitContainers) != proxies || rig.Condition(p, v1.PodReady) != v1.ConditionTrue {
				return false, p.Status
			}
		}
		return true, nil
	})
}

// asks wants the client, which the policy injected, to be answered by the server, which was injected by command.
func (r *reader) asks() {
	r.t.Helper()
	var pods [2]v1.Pod
	for i, app := range []string{"web", "by-command"} {
		list, err := r.Admin.CoreV1().Pods("shop").List(r.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil || len(list.Items) != 1 {
			r.t.Fatalf("pods of %s: %d, %v", app, len(list.Items), err)
		}
		pods[i] = list.Items[0]
	}
	since := time.Now()
	rig.Until(r.t, patience, pods[0].Name+" answered by "+pods[1].Name, func(ctx context.Context) (bool, any) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pods[0].Status.PodIP+":9900/stats", http.NoBody)
		if err != nil {
			return false, err
		}
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err
		}
		defer func() { _ = response.Body.Close() }()
		var s report.Stats
		err = json.NewDecoder(response.Body).Decode(&s)
		k := s.Kinds["http"]
		return err == nil && k != nil && k.Answers[pods[1].Name].Last.After(since), fmt.Sprint(k, err)
	})
}

func (r *reader) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reader) kubeconfig() string {
	r.t.Helper()
	text, err := os.ReadFile(r.Kubeconfig)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}
