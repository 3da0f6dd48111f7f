package kubelet_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/freshmesh/freshmesh/test/cluster/rig"
)

// patience bounds a wait for what takes seconds, and a dead node's end half a minute, on a machine that is busy elsewhere.
const patience = 3 * time.Minute

func TestMain(m *testing.M) { os.Exit(rig.Main(m, nil)) }

// One cluster serves all of these tests.
func TestNode(t *testing.T) {
	r := rig.ForTest(t, rig.Config{Nodes: 2})
	n := node{r, r.Namespace(t, "node", nil)}
	for _, test := range []struct {
		name string
		run  func(*testing.T, node)
	}{{"Life", life}, {"Killed", killed}, {"CrashLoop", crashLoop}, {"Completed", completed}, {"Forced", forced}, {"Death", death}} {
		t.Run(test.name, func(t *testing.T) { test.run(t, n) })
	}
}

type node struct {
	*rig.Rig
	namespace string
}

func (n node) create(t *testing.T, text string) *v1.Pod {
	t.Helper()
	pod, err := n.Admin.CoreV1().Pods(n.namespace).Create(t.Context(), rig.Decode[v1.Pod](t, text), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func (n node) until(t *testing.T, pod, what string, holds func(*v1.Pod) bool) {
	t.Helper()
	rig.Until(t, patience, pod+" "+what, func(ctx context.Context) (bool, any) {
		p, err := n.Admin.CoreV1().Pods(n.namespace).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return holds(p), p.Status
	})
}

func (n node) remove(t *testing.T, pod string, o metav1.DeleteOptions) {
	t.Helper()
	if err := n.Admin.CoreV1().Pods(n.namespace).Delete(t.Context(), pod, o); err != nil {
		t.Fatal(err)
	}
}

func (n node) gone(t *testing.T, pod string) {
	t.Helper()
	rig.Until(t, patience, pod+" gone", func(ctx context.Context) (bool, any) {
		p, err := n.Admin.CoreV1().Pods(n.namespace).Get(ctx, pod, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(p.Status.Phase, " ", err)
	})
}

// events gives what happened to a pod, wherever it ran, as "WHAT CONTAINER".
func (n node) events(pod string) []string {
	var all []string
	for _, k := range n.Nodes {
		for _, e := range k.Trace.Of(types.NamespacedName{Namespace: n.namespace, Name: pod}) {
			all = append(all, strings.TrimSpace(e.What+" "+e.Container))
		}
	}
	return all
}

// inOrder wants events to be there in this order, among others.
func inOrder(t *testing.T, events []string, want ...string) {
	t.Helper()
	at := 0
	for _, e := range events {
		if at < len(want) && e == want[at] {
			at++
		}
	}
	if at < len(want) {
		t.Errorf("%q does not follow %q in %q", want[at], want[:at], events)
	}
}

const lifePod = `
metadata: {name: life, labels: {app: life}}
spec:
  terminationGracePeriodSeconds: 120
  readinessGates: [{conditionType: example.com/gate}]
  initContainers:
  - {name: init, image: tools, command: [/bin/sh, -c, 'test "$NODE" = "$(NODE)" && test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo $(NODE) > /shared/init'],
     env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}], volumeMounts: [{name: shared, mountPath: /shared}]}
  - name: first
    image: app
    restartPolicy: Always
    args: [serve, --http, ":8081", --grpc, ":9091", --tcp, ":9001", --start-after, 500ms]
    startupProbe: {httpGet: {port: 8081, path: /ready}, periodSeconds: 1}
    lifecycle: {preStop: {exec: {command: [/bin/sh, -c, "until test -e /shared/second-ends; do sleep 0.1; done"]}}}
    volumeMounts: [{name: shared, mountPath: /shared}]
  - {name: second, image: tools, restartPolicy: Always, command: [/bin/sh, -c, 'trap "> /shared/second-ends; exit" TERM; > /shared/second-hears; while :; do sleep 0.1; done'],
     startupProbe: {exec: {command: [/bin/sh, -c, test -e /shared/second-hears]}, periodSeconds: 1, failureThreshold: 60}, volumeMounts: [{name: shared, mountPath: /shared}]}
  containers:
  - name: one
    image: app
    args: [serve]
    ports: [{name: web, containerPort: 8080}]
    readinessProbe: {httpGet: {port: web, path: /ready}, periodSeconds: 1, failureThreshold: 1}
    lifecycle: {preStop: {httpGet: {port: web, path: /no-such-path}}}
    volumeMounts: [{name: shared, mountPath: /shared}]
  - name: two
    image: tools
    command: [/bin/sh, -c, 'trap "exit 0" TERM; while :; do sleep 0.1; done']
    lifecycle: {preStop: {exec: {command: [/bin/sh, -c, "cat /shared/init"]}}}
    volumeMounts: [{name: shared, mountPath: /shared}]
  volumes: [{name: shared, emptyDir: {}}]
`

// A pod comes up and goes down in kubelet's order, and its status says so in kubelet's order.
func life(t *testing.T, n node) {
	statuses := n.watch(t, "life")
	n.create(t, lifePod)
	n.until(t, "life", "ready but for its gate", func(p *v1.Pod) bool {
		return rig.Condition(p, v1.ContainersReady) == v1.ConditionTrue && rig.Condition(p, v1.PodReady) == v1.ConditionFalse
	})
	gate := `{"status":{"conditions":[{"type":"example.com/gate","status":"True"}]}}`
	if _, err := n.Admin.CoreV1().Pods(n.namespace).Patch(t.Context(), "life", types.StrategicMergePatchType, []byte(gate), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	n.until(t, "life", "ready", func(p *v1.Pod) bool { return rig.Condition(p, v1.PodReady) == v1.ConditionTrue })
	n.remove(t, "life", metav1.DeleteOptions{})
	n.gone(t, "life")

	events := n.events("life")
	inOrder(t, events, "started init", "ended init", "started first", "started second", "started one", "ready one", "SIGTERM second", "ended second", "SIGTERM first", "ended first", "deleted")
	inOrder(t, events, "started second", "started two", "SIGTERM two", "ended two", "SIGTERM second")
	// What a sidecar does before its end does not hold back the application's: here it even waits for that.
	inOrder(t, events, "preStop first", "SIGTERM one", "ended one", "preStop done first", "SIGTERM first")
	// A response with status 404 is a preStop done.
	inOrder(t, events, "preStop one", "preStop done one", "SIGTERM one", "ended one", "SIGTERM second")
	inOrder(t, events, "preStop two", "preStop done two", "SIGTERM two")
	if slices.Contains(events, "SIGKILL one") || slices.Contains(events, "SIGKILL first") {
		t.Errorf("SIGKILL within the grace period: %q", events)
	}
	wantInOrder(t, <-statuses,
		"Pending initialized False ready False",
		"Running initialized True ready False",
		"Running initialized True ready True",
		"terminating Running initialized True ready True",
		"terminating Succeeded initialized True ready False")
}

// watch gives, when the pod is gone, what its status was from step to step.
func (n node) watch(t *testing.T, pod string) <-chan []string {
	t.Helper()
	w, err := n.Admin.CoreV1().Pods(n.namespace).Watch(t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", pod).String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan []string, 1)
	go func() {
		defer w.Stop()
		var all []string
		for e := range w.ResultChan() {
			p, ok := e.Object.(*v1.Pod)
			if !ok || e.Type == watch.Deleted {
				break
			}
			s := fmt.Sprintf("%s initialized %s ready %s", p.Status.Phase, rig.Condition(p, v1.PodInitialized), rig.Condition(p, v1.PodReady))
			if p.DeletionTimestamp != nil {
				s = "terminating " + s
			}
			if len(all) == 0 || all[len(all)-1] != s {
				all = append(all, s)
			}
		}
		result <- all
	}()
	return result
}

func wantInOrder(t *testing.T, got []string, want ...string) {
	t.Helper()
	inOrder(t, got, want...)
	if last := got[len(got)-1]; last != want[len(want)-1] {
		t.Errorf("the last status is %q, want %q", last, want[len(want)-1])
	}
}

// What ignores SIGTERM is killed when the grace period is over; a preStop that
// takes longer than that is cut, and SIGKILL comes 2 s after SIGTERM.
func killed(t *testing.T, n node) {
	n.create(t, `
metadata: {name: killed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: deaf, image: tools, command: [/bin/sh, -c, 'trap "" TERM; > /shared/deaf; while :; do sleep 0.1; done'],
     readinessProbe: {exec: {command: [/bin/sh, -c, test -e /shared/deaf]}, periodSeconds: 1}, volumeMounts: [{name: shared, mountPath: /shared}]}
  - {name: slow, image: tools, command: [/bin/sleep, "1000"], lifecycle: {preStop: {exec: {command: [/bin/sleep, "1000"]}}}}
  volumes: [{name: shared, emptyDir: {}}]
`)
	n.until(t, "killed", "ready", func(p *v1.Pod) bool { return rig.Condition(p, v1.PodReady) == v1.ConditionTrue })
	n.remove(t, "killed", metav1.DeleteOptions{})
	n.gone(t, "killed")
	events := n.events("killed")
	inOrder(t, events, "SIGTERM deaf", "SIGKILL deaf", "ended deaf")
	inOrder(t, events, "preStop slow", "preStop failed slow", "SIGTERM slow", "ended slow")
}

func crashLoop(t *testing.T, n node) {
	n.create(t, `
metadata: {name: crash}
spec: {containers: [{name: main, image: tools, command: [/bin/sh, -c, exit 7]}]}
`)
	n.until(t, "crash", "in back-off", func(p *v1.Pod) bool {
		for _, s := range p.Status.ContainerStatuses {
			last := s.LastTerminationState.Terminated
			if s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff" && s.RestartCount >= 2 && last != nil && last.ExitCode == 7 {
				return true
			}
		}
		return false
	})
	n.remove(t, "crash", metav1.DeleteOptions{})
	n.gone(t, "crash")
}

// A pod whose applications have ended for good ends, and its sidecars with it.
func completed(t *testing.T, n node) {
	n.create(t, `
metadata: {name: job}
spec:
  restartPolicy: Never
  initContainers: [{name: sidecar, image: tools, restartPolicy: Always, command: [/bin/sleep, "1000"]}]
  containers: [{name: main, image: tools, command: [/bin/true]}]
`)
	n.until(t, "job", "succeeded", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded })
	inOrder(t, n.events("job"), "started sidecar", "started main", "ended main", "SIGTERM sidecar", "ended sidecar")
	n.remove(t, "job", metav1.DeleteOptions{})
	n.gone(t, "job")
}

// A node dies: it is found unreachable, its pods are told to go, and do once it is back.
func death(t *testing.T, n node) {
	n.create(t, `
metadata: {name: dying}
spec: {nodeName: node-2, terminationGracePeriodSeconds: 1, containers: [{name: main, image: tools, command: [/bin/sleep, "1000"]}]}
`)
	n.until(t, "dying", "ready", func(p *v1.Pod) bool { return rig.Condition(p, v1.PodReady) == v1.ConditionTrue })
	if err := n.Nodes[1].Die(); err != nil {
		t.Fatal(err)
	}
	n.until(t, "dying", "evicted", func(p *v1.Pod) bool {
		return rig.Condition(p, v1.PodReady) == v1.ConditionFalse && p.DeletionTimestamp != nil
	})
	if err := n.Nodes[1].Revive(); err != nil {
		t.Fatal(err)
	}
	n.gone(t, "dying")
	rig.Until(t, patience, "node ready without taints", func(ctx context.Context) (bool, any) {
		o, err := n.Admin.CoreV1().Nodes().Get(ctx, "node-2", metav1.GetOptions{})
		return err == nil && len(o.Spec.Taints) == 0, o.Spec.Taints
	})
}

// A forced deletion takes the object at once, and the processes soon.
func forced(t *testing.T, n node) {
	n.create(t, `
metadata: {name: forced}
spec: {containers: [{name: main, image: tools, command: [/bin/sh, -c, 'trap "" TERM; while :; do sleep 0.1; done']}]}
`)
	n.until(t, "forced", "ready", func(p *v1.Pod) bool { return rig.Condition(p, v1.PodReady) == v1.ConditionTrue })
	none := int64(0)
	n.remove(t, "forced", metav1.DeleteOptions{GracePeriodSeconds: &none})
	rig.Until(t, patience, "ended", func(context.Context) (bool, any) {
		events := n.events("forced")
		return slices.Contains(events, "ended main"), events
	})
}
