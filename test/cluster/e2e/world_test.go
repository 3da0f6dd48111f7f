package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/test/cluster/app/report"
	"github.com/freshmesh/freshmesh/test/cluster/rig"
)

const (
	meshNamespace = "freshmesh"
	meshPods      = "app.kubernetes.io/name=xds-server"
	// answerTime is within what a balancer gives everybody a share: it may spare for 85 s what kept a
	// request waiting for ten (docs/dataplane.md).
	answerTime = 2 * time.Minute
	// startTime bounds the start of a few pods, and rolloutTime a rollout, on a loaded machine too.
	startTime   = 2 * time.Minute
	rolloutTime = 5 * time.Minute
)

// place is a namespace of the cluster that belongs to one test.
type place struct {
	t         *testing.T
	namespace string
}

// newPlace makes one, once the mesh is up.
func newPlace(t *testing.T, name string) place {
	t.Helper()
	deployed(t, meshNamespace, "xds-server", startTime)
	p := place{t, the.Namespace(t, name, map[string]string{"freshmesh.dev/inject": "enabled"})}
	t.Cleanup(func() {
		if t.Failed() {
			p.logs()
		}
	})
	p.injects()
	return p
}

// injects waits until the API server has heard of the policy and of the namespace.
func (p place) injects() {
	p.t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "trial"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app", Image: "app"}}}}
	rig.Until(p.t, startTime, "injection at work", func(ctx context.Context) (bool, any) {
		got, err := the.Admin.CoreV1().Pods(p.namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && len(got.Spec.InitContainers) == 1, fmt.Sprint(got, err)
	})
}

// apply applies a template.
func (p place) apply(name string, data any) {
	p.t.Helper()
	text, err := render(name, data)
	if err == nil {
		err = the.Apply(p.t.Context(), p.namespace, text, false)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// applyText applies YAML.
func (p place) applyText(text string) {
	p.t.Helper()
	if err := the.Apply(p.t.Context(), p.namespace, []byte(text), false); err != nil {
		p.t.Fatal(err)
	}
}

// deploy applies a backend, and waits until it is rolled out.
func (p place) deploy(b backend) {
	p.t.Helper()
	p.apply("backend.yaml", b)
	deployed(p.t, p.namespace, b.Name, rolloutTime)
}

// deployed waits until a deployment is as it should be, and nothing of an older one is left.
func deployed(t *testing.T, namespace, name string, within time.Duration) {
	t.Helper()
	rig.Until(t, within, "deployment "+name+" rolled out", func(ctx context.Context) (bool, any) {
		d, err := the.Admin.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || !rolledOut(d) {
			return false, fmt.Sprint(err, d.Status)
		}
		pods, err := the.Admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
		return err == nil && len(pods.Items) == int(*d.Spec.Replicas), fmt.Sprint(err, len(pods.Items), " pods")
	})
}

func rolledOut(d *appsv1.Deployment) bool {
	s, want := d.Status, *d.Spec.Replicas
	return s.ObservedGeneration >= d.Generation && s.Replicas == want && s.UpdatedReplicas == want && s.AvailableReplicas == want
}

// pods gives the pods of an application, those that are not going.
func (p place) pods(app string) []v1.Pod {
	p.t.Helper()
	pods, err := p.staying(p.t.Context(), app)
	if err != nil {
		p.t.Fatal(err)
	}
	return pods
}

func (p place) staying(ctx context.Context, app string) ([]v1.Pod, error) {
	list, err := the.Admin.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(pod v1.Pod) bool { return pod.DeletionTimestamp != nil }), nil
}

// listed waits until Kubernetes lists the pods of an application, all of them and no others, as ready endpoints, and
// gives their names. Its controller waits longer and longer, from 1 s up to 1,000 s, when the API server was away or
// refused it (pkg/controller/endpointslice of Kubernetes, maxSyncBackOff): that time is not the mesh's.
func (p place) listed(app string) []string {
	p.t.Helper()
	var pods []string
	rig.Until(p.t, rolloutTime, "the pods of "+app+" are listed as endpoints", func(ctx context.Context) (bool, any) {
		list, err := the.Admin.DiscoveryV1().EndpointSlices(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + app})
		if err != nil {
			return false, err
		}
		ready := make(map[string]bool)
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				if e.TargetRef != nil && e.Conditions.Ready != nil && *e.Conditions.Ready {
					ready[e.TargetRef.Name] = true
				}
			}
		}
		staying, err := p.staying(ctx, app)
		if err != nil {
			return false, err
		}
		pods = names(staying)
		slices.Sort(pods)
		now := slices.Sorted(maps.Keys(ready))
		return len(pods) > 0 && slices.Equal(pods, now), fmt.Sprintf("pods %v, endpoints %v", pods, now)
	})
	return pods
}

// name gives a service's name in the mesh, without a port.
func (p place) name(service string) string { return service + "." + p.namespace + ".svc.cluster.local" }

// ready waits until a pod is, and gives it.
func (p place) ready(name string) *v1.Pod {
	p.t.Helper()
	var pod *v1.Pod
	rig.Until(p.t, startTime, "pod "+name+" ready", func(ctx context.Context) (bool, any) {
		var err error
		if pod, err = the.Admin.CoreV1().Pods(p.namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err
		}
		return rig.Condition(pod, v1.PodReady) == v1.ConditionTrue, pod.Status
	})
	return pod
}

// maxLogs is of how many pods of a namespace logs are shown: those of the clients are among them.
const maxLogs = 16

// logs shows what the namespace's and the mesh's containers wrote last.
func (p place) logs() {
	for _, namespace := range []string{p.namespace, meshNamespace} {
		pods, err := the.Admin.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			p.t.Log(err)
			return
		}
		for i, pod := range pods.Items {
			if i == maxLogs {
				break
			}
			p.t.Logf("%s has %s on %s", pod.Name, pod.Status.PodIP, pod.Spec.NodeName)
			files, _ := filepath.Glob(filepath.Join(the.Dir, "pods", string(pod.UID), "*.log"))
			for _, f := range files {
				content, err := os.ReadFile(f)
				p.t.Logf("%s %s: %s: %v\n%s", pod.Name, pod.Status.Phase, filepath.Base(f), err, tail(string(content), 12))
			}
		}
	}
}

// clusters shows what a client's proxy thinks of its endpoints.
func (c client) clusters() {
	var text string
	err := fetch(context.Background(), http.MethodGet, c.adminURL("/clusters"), &text)
	c.t.Logf("%s's proxy: %v\n%s", c.pod.Name, err, text)
}

func tail(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}

// fetch asks for a URL and reads the answer into to.
func fetch(ctx context.Context, method, url string, to any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || to == nil {
		return err
	}
	if text, ok := to.(*string); ok {
		*text = string(body)
		return nil
	}
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("%s: status %d: %w: %s", url, response.StatusCode, err, body)
	}
	return nil
}

// audits gives the audit of every xds-server.
func audits(ctx context.Context) ([]ack.Audit, error) {
	pods, err := the.Admin.CoreV1().Pods(meshNamespace).List(ctx, metav1.ListOptions{LabelSelector: meshPods})
	if err != nil {
		return nil, err
	}
	var all []ack.Audit
	for _, pod := range pods.Items {
		var a ack.Audit
		if err := fetch(ctx, http.MethodGet, "http://"+pod.Status.PodIP+":18080/audit", &a); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// fresh waits until every node of the mesh that is connected is fresh.
func fresh(t *testing.T, within time.Duration) {
	t.Helper()
	rig.Until(t, within, "all nodes fresh", func(ctx context.Context) (bool, any) {
		all, err := audits(ctx)
		if err != nil {
			return false, err
		}
		for _, a := range all {
			for _, n := range a.Nodes {
				if n.State != ack.Fresh && n.State != ack.Disconnected {
					return false, fmt.Sprint(n.ID, n.State, n.Reason)
				}
			}
		}
		return true, nil
	})
}

// client is a pod that asks all the time.
type client struct {
	place
	pod *v1.Pod
	// port is where it says what it has seen; "" is 9900.
	port string
}

// clientPod is what client.yaml needs.
type clientPod struct {
	Name, Node, Host, Kinds, Life string
	// Zone is for Envoy, which does not know its node.
	Zone    string
	Envoy   bool
	Rate    float64
	Clients int
	// Listen is where TCP for a cluster is taken, ADDRESS=CLUSTER.
	Listen []string
}

// everyKind is what clients speak.
const everyKind = "http,grpc,stream,ws,tcp"

// client starts a client of a service, with a proxy: dataplane or envoy.
func (p place) client(name, proxy, service string, edit func(*clientPod)) client {
	p.t.Helper()
	if proxy == "envoy" && os.Getenv(envoyDir) == "" {
		p.t.Skip("no Envoy")
	}
	c := clientPod{
		Name: name, Node: "node-1", Zone: "zone-a", Envoy: proxy == "envoy", Host: p.name(service), Kinds: everyKind, Life: "0s", Rate: 20, Clients: 2,
		Listen: []string{"127.0.0.1:9001=" + p.name(service) + ":9000"},
	}
	if edit != nil {
		edit(&c)
	}
	p.apply("client.yaml", c)
	return client{p, p.ready(name), ""}
}

// settled waits until every kind of request has been answered, and forgets all that was before.
func (c client) settled() {
	c.t.Helper()
	rig.Until(c.t, time.Minute, c.pod.Name+" answered by every kind", func(ctx context.Context) (bool, any) {
		s, err := c.ask(ctx)
		if err != nil {
			return false, err
		}
		for _, k := range s.Kinds {
			if len(k.Answers) == 0 {
				return false, s
			}
		}
		return len(s.Kinds) > 0, s
	})
	c.reset()
}

func (c client) reset() {
	c.t.Helper()
	if err := fetch(c.t.Context(), http.MethodPost, c.url("/reset"), nil); err != nil {
		c.t.Fatal(err)
	}
}

// adminURL leads to its proxy's admin side.
func (c client) adminURL(path string) string { return "http://" + c.pod.Status.PodIP + ":9902" + path }

func (c client) url(path string) string {
	return "http://" + net.JoinHostPort(c.pod.Status.PodIP, cmp.Or(c.port, "9900")) + path
}

func (c client) ask(ctx context.Context) (report.Stats, error) {
	var s report.Stats
	return s, fetch(ctx, http.MethodGet, c.url("/stats"), &s)
}

// stats gives what it has seen since settled.
func (c client) stats() report.Stats {
	c.t.Helper()
	s, err := c.ask(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// answeredBy waits until answers have come, since the time given, from each of the
// backends named to short requests, and from any of them to what is long-lived. A balancer
// by least requests may spare those that have long-lived ones: they need not answer others.
func (c client) answeredBy(since time.Time, names ...string) {
	c.t.Helper()
	answered := false
	defer func() {
		if !answered {
			c.clusters()
		}
	}()
	rig.Until(c.t, answerTime, fmt.Sprintf("%s answered by %v", c.pod.Name, names), func(ctx context.Context) (bool, any) {
		s, err := c.ask(ctx)
		if err != nil {
			return false, err
		}
		busy := make(map[string]bool)
		for kind, k := range s.Kinds {
			for name, b := range k.Answers {
				busy[name] = busy[name] || !short(kind) && b.Last.After(since)
			}
		}
		for kind, k := range s.Kinds {
			all, some := true, false
			for _, name := range names {
				late := k.Answers[name].Last.After(since)
				all, some = all && (late || busy[name]), some || late
			}
			if short(kind) && !all || !some {
				return false, fmt.Sprintf("%s: %+v", kind, k)
			}
		}
		return len(s.Kinds) > 0, nil
	})
	answered = true
}

func short(kind string) bool { return kind == "http" || kind == "grpc" }

// lossless wants every request answered, and says how many there were.
func (c client) lossless() report.Stats {
	c.t.Helper()
	s := c.stats()
	for kind, k := range s.Kinds {
		c.t.Logf("%s %s: %d sent, %d failed, %d backends, %d opened, %d byes, %d sent again by the gRPC library, slowest %v",
			c.pod.Name, kind, k.Sent, k.Failed, len(k.Answers), k.Opened, k.Byes, k.Retried, k.Slowest.Round(time.Millisecond))
		if k.Failed > 0 {
			c.t.Errorf("%s %s: %d of %d failed: %v", c.pod.Name, kind, k.Failed, k.Sent, k.Failures)
		}
		if k.Sent == 0 {
			c.t.Errorf("%s %s: nothing was sent", c.pod.Name, kind)
		}
	}
	return s
}
