package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/freshmesh/freshmesh/test/cluster/rig"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func rollingUpdate(share string) func(*testing.T, *mesh) {
	return func(t *testing.T, m *mesh) {
		m.echo.Strategy = rolling(share, share)
		old := names(m.pods("echo"))
		m.echo.Version += "+"
		began := time.Now()
		m.deploy(m.echo)
		m.replaced(m.clients, old, names(m.pods("echo")))
		t.Log("waited for the barrier:", m.waits(began))
	}
}

// badVersion rolls out what crashes: the old pods go on, and the rollout is undone.
func badVersion(_ *testing.T, m *mesh) {
	good := m.echo
	bad := good
	bad.Version, bad.Args = "bad", []string{"--http", "nonsense"}
	bad.Strategy = rolling("25%", "0%")
	m.apply("backend.yaml", bad)
	rig.Until(m.t, startTime, "crash loop", func(ctx context.Context) (bool, any) {
		list, err := the.Admin.CoreV1().Pods(m.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=echo"})
		if err != nil {
			return false, err
		}
		for _, pod := range list.Items {
			for _, s := range pod.Status.ContainerStatuses {
				if s.RestartCount >= 2 {
					return true, nil
				}
			}
		}
		return false, len(list.Items)
	})
	m.deploy(good)
	m.steady()
}

// scale goes from 4 pods to one, to fifty, and back to one.
func scale(t *testing.T, m *mesh) {
	for _, n := range []int{1, size(12, 50), 1, 4} {
		m.echo.Replicas = n
		began := time.Now()
		m.deploy(m.echo)
		m.steady()
		t.Logf("%d pods; waited for the barrier: %s", n, spread(m.waits(began)))
	}
}

// recreate has no pod at all for a while: requests of that time may fail, and no other.
func recreate(_ *testing.T, m *mesh) {
	before := m.echo
	m.echo.Strategy = "{type: Recreate}"
	m.echo.Version += "+"
	// Nobody takes the last pod's place before it has gone: the barrier waits for that in vain.
	m.echo.PreStop = noHook
	m.deploy(m.echo)
	m.steadyAgain("while there was no pod")
	m.echo = before
	m.echo.Version += "++"
	m.deploy(m.echo)
	// These pods went without a barrier too: their proxies' clients have to find the new ones before anybody counts again.
	since := time.Now()
	for _, c := range m.clients {
		c.answeredBy(since, names(m.pods("echo"))...)
	}
}

// statefulSet: each pod has a name in the mesh that means this pod, also after its rollout.
func statefulSet(t *testing.T, m *mesh) {
	set := func(version string) {
		pod, err := render("pod.yaml", backend{Name: "stateful", Version: version, Grace: 5})
		if err != nil {
			t.Fatal(err)
		}
		m.applyText(`
apiVersion: v1
kind: Service
metadata: {name: stateful}
spec: {clusterIP: None, selector: {app: stateful}, ports: [{name: http, port: 8080, appProtocol: http}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: stateful}
spec:
  serviceName: stateful
  replicas: 2
  selector: {matchLabels: {app: stateful}}
  template:
    ` + strings.ReplaceAll(string(pod), "\n", "\n    "))
	}
	for _, version := range []string{"1", "2"} {
		set(version)
		rig.Until(t, startTime, "stateful set at version "+version, func(ctx context.Context) (bool, any) {
			s, err := the.Admin.AppsV1().StatefulSets(m.namespace).Get(ctx, "stateful", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			return s.Status.ObservedGeneration == s.Generation && s.Status.ReadyReplicas == 2 && s.Status.UpdatedReplicas == 2 && s.Status.CurrentRevision == s.Status.UpdateRevision, s.Status
		})
		for _, pod := range []string{"stateful-0", "stateful-1"} {
			m.answers(pod+"."+m.authority("stateful", 8080), pod)
		}
		m.answers(m.authority("stateful", 8080), "stateful-0", "stateful-1")
	}
	m.steady()
}

// thousandEndpoints has a service with 1,000 addresses in ten slices, half of which go.
func thousandEndpoints(t *testing.T, m *mesh) {
	if err := the.Network.Local(netip.MustParsePrefix("10.245.0.0/16")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(the.Programs.Own, "app"), "serve", "--name", "", "--http", ":8888", "--grpc", ":8889", "--tcp", ":8890")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var text strings.Builder
	fmt.Fprint(&text, "apiVersion: v1\nkind: Service\nmetadata: {name: many}\nspec: {ports: [{name: http, port: 8080, appProtocol: http}]}\n")
	var kept []string
	for slice := range 10 {
		fmt.Fprintf(&text, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: many-%d, labels: {kubernetes.io/service-name: many}}\naddressType: IPv4\nports: [{name: http, port: 8888, protocol: TCP}]\nendpoints:\n", slice)
		for i := range 100 {
			address := fmt.Sprintf("10.245.%d.%d", slice, i+1)
			fmt.Fprintf(&text, "- {addresses: [%s], conditions: {ready: true}}\n", address)
			if slice < 5 {
				kept = append(kept, address)
			}
		}
	}
	m.applyText(text.String())
	m.sees(m.authority("many", 8080), 1000, nil)
	for slice := 5; slice < 10; slice++ {
		if err := the.Admin.DiscoveryV1().EndpointSlices(m.namespace).Delete(t.Context(), fmt.Sprintf("many-%d", slice), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	m.sees(m.authority("many", 8080), 500, kept)
	m.steady()
}

// sees waits until each proxy uses as many endpoints of a service, and wants the answers to come
// from those that are listed; nil for any.
func (m *mesh) sees(authority string, endpoints int, listed []string) {
	m.t.Helper()
	for _, c := range m.clients {
		rig.Until(m.t, time.Minute, fmt.Sprintf("%s has %d endpoints of %s", c.pod.Name, endpoints, authority), func(ctx context.Context) (bool, any) {
			// Our data plane looks only when asked.
			if status, who, err := c.askFor(ctx, authority); err != nil || status != 200 {
				return false, fmt.Sprint(status, who, err)
			}
			var text string
			if err := fetch(ctx, "GET", c.adminURL("/clusters"), &text); err != nil {
				return false, err
			}
			seen := make(map[string]bool)
			for line := range strings.Lines(text) {
				if i := strings.Index(line, "10.245."); i >= 0 && strings.Contains(line, authority) {
					seen[line[i:i+strings.IndexByte(line[i:], ':')]] = true
				}
			}
			return len(seen) == endpoints, len(seen)
		})
		for range 200 {
			status, who, err := c.askFor(m.t.Context(), authority)
			if err != nil || status != 200 || listed != nil && !slices.Contains(listed, who) {
				m.t.Fatalf("%s: %s answered by %q: status %d, %v", c.pod.Name, authority, who, status, err)
			}
		}
	}
}

// nodeDeath: a node loses its power. What was under way there is lost; soon nobody asks there any more.
func nodeDeath(t *testing.T, m *mesh) {
	b := plain("mortal", 2)
	b.Nodes, b.Spread = "[node-2, node-3]", "kubernetes.io/hostname"
	m.deploy(b)
	var staying string
	for _, pod := range m.pods("mortal") {
		if pod.Spec.NodeName == "node-2" {
			staying = pod.Name
		}
	}
	m.answers(m.authority("mortal", 8080), names(m.pods("mortal"))...)
	began := time.Now()
	if err := the.Nodes[2].Die(); err != nil {
		t.Fatal(err)
	}
	m.answers(m.authority("mortal", 8080), staying)
	t.Logf("nobody asks on the dead node %v after its death", time.Since(began).Round(time.Millisecond))
	if err := the.Nodes[2].Revive(); err != nil {
		t.Fatal(err)
	}
	deployed(t, m.namespace, "mortal", rolloutTime)
	deployed(t, meshNamespace, "xds-server", rolloutTime)
	deployed(t, m.namespace, "echo", rolloutTime)
}

// waits gives how long the pods of the namespace have waited in preStop since a time, sorted, and
// wants each to have ended with 200.
func (p place) waits(since time.Time) []time.Duration {
	p.t.Helper()
	var all []time.Duration
	began := make(map[types.NamespacedName]time.Time)
	for _, node := range the.Nodes {
		for _, e := range node.Trace.All() {
			if e.Pod.Namespace != p.namespace || e.At.Before(since) {
				continue
			}
			switch e.What {
			case "preStop":
				began[e.Pod] = e.At
			case "preStop done", "preStop failed":
				all = append(all, e.At.Sub(began[e.Pod]))
				if !strings.HasPrefix(e.Detail, "200 ") {
					p.t.Errorf("%s: %s after %v: %s", e.Pod, e.What, all[len(all)-1], e.Detail)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// spread says how durations, sorted, lie.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	at := func(share int) time.Duration { return all[(len(all)-1)*share/100].Round(time.Millisecond) }
	return fmt.Sprintf("%d, p50 %v, p99 %v, longest %v", len(all), at(50), at(99), at(100))
}
