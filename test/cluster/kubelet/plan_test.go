package kubelet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// podOf makes the containers of a pod: o, s and m stand for the three roles.
func podOf(t *testing.T, roles string) (*v1.Pod, []*container) {
	t.Helper()
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{}
	for i, r := range roles {
		c := v1.Container{Name: string(r) + string(rune('1'+i))}
		switch r {
		case 's':
			c.RestartPolicy = &always
			fallthrough
		case 'o':
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod, containersOf(pod)
}

func started(c *container)  { c.process, c.runs, c.started, c.ready = &process{}, c.runs+1, true, true }
func starting(c *container) { c.process, c.runs = &process{}, c.runs+1 }
func ended(c *container) {
	c.process, c.runs, c.ended = nil, max(1, c.runs), &v1.ContainerStateTerminated{}
}
func failedWell(c *container) { ended(c); c.ended.ExitCode = 1 }
func waiting(*container)      {}

func TestNext(t *testing.T) {
	for name, test := range map[string]struct {
		roles  string
		states []func(*container)
		policy v1.RestartPolicy
		want   []string
		over   bool
	}{
		"nothing yet":                     {"osm", []func(*container){waiting, waiting, waiting}, v1.RestartPolicyAlways, []string{"o1"}, false},
		"the first runs":                  {"osm", []func(*container){started, waiting, waiting}, v1.RestartPolicyAlways, nil, false},
		"the first is done":               {"osm", []func(*container){ended, waiting, waiting}, v1.RestartPolicyAlways, []string{"s2"}, false},
		"the sidecar is starting":         {"osm", []func(*container){ended, starting, waiting}, v1.RestartPolicyAlways, nil, false},
		"the sidecar has started":         {"osmm", []func(*container){ended, started, waiting, waiting}, v1.RestartPolicyAlways, []string{"m3", "m4"}, false},
		"a failed init container":         {"om", []func(*container){failedWell, waiting}, v1.RestartPolicyAlways, []string{"o1"}, false},
		"a failed one that must not":      {"om", []func(*container){failedWell, waiting}, v1.RestartPolicyNever, nil, true},
		"a sidecar ended":                 {"sm", []func(*container){failedWell, started}, v1.RestartPolicyNever, []string{"s1"}, false},
		"a sidecar starts again":          {"sm", []func(*container){starting, failedWell}, v1.RestartPolicyAlways, []string{"m2"}, false},
		"an application ended":            {"sm", []func(*container){started, ended}, v1.RestartPolicyAlways, []string{"m2"}, false},
		"all applications ended for good": {"smm", []func(*container){started, ended, ended}, v1.RestartPolicyOnFailure, nil, true},
		"one application ended for good":  {"smm", []func(*container){started, ended, started}, v1.RestartPolicyOnFailure, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, all := podOf(t, test.roles)
			for i, f := range test.states {
				f(all[i])
			}
			got := next(test.policy, all, time.Now())
			var names []string
			for _, c := range got.start {
				names = append(names, c.spec.Name)
			}
			if diff := cmp.Diff(test.want, names); diff != "" || got.over != test.over {
				t.Errorf("over %v, want %v; started (-want +got):\n%s", got.over, test.over, diff)
			}
		})
	}
}

func TestNextWaitsForTheBackOff(t *testing.T) {
	_, all := podOf(t, "m")
	failedWell(all[0])
	now := time.Now()
	all[0].notBefore = now.Add(time.Second)
	if p := next(v1.RestartPolicyAlways, all, now); len(p.start) > 0 || !p.again.Equal(all[0].notBefore) {
		t.Errorf("%+v, want to wait", p)
	}
	if p := next(v1.RestartPolicyAlways, all, now.Add(time.Second)); len(p.start) != 1 {
		t.Errorf("%+v, want a start", p)
	}
}

func TestBackoff(t *testing.T) {
	for crashes, want := range map[int]time.Duration{0: 0, 1: 0, 2: 10, 3: 20, 4: 40, 6: 160, 7: 300, 60: 300} {
		if got := backoff(10*time.Second, crashes); got != want*time.Second {
			t.Errorf("%d crashes: %v, want %v s", crashes, got, want)
		}
	}
}

func TestTally(t *testing.T) {
	count := tally{spec: &v1.Probe{SuccessThreshold: 2}}
	var got []bool
	for _, good := range []bool{true, true, false, false, false, true, false, false} {
		got = append(got, count.add(good))
	}
	if diff := cmp.Diff([]bool{false, true, false, false, true, false, false, false}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatus(t *testing.T) {
	for name, test := range map[string]struct {
		states []func(*container)
		ended  bool
		phase  v1.PodPhase
		want   map[v1.PodConditionType]string
	}{
		"nothing yet": {[]func(*container){waiting, waiting, waiting}, false, v1.PodPending, map[v1.PodConditionType]string{
			v1.PodInitialized: "False ContainersNotInitialized", v1.ContainersReady: "False ContainersNotReady", v1.PodReady: "False ContainersNotReady",
		}},
		"initialized": {[]func(*container){ended, started, waiting}, false, v1.PodPending, map[v1.PodConditionType]string{
			v1.PodInitialized: "True ", v1.ContainersReady: "False ContainersNotReady", v1.PodReady: "False ContainersNotReady",
		}},
		"ready but for the gate": {[]func(*container){ended, started, started}, false, v1.PodRunning, map[v1.PodConditionType]string{
			v1.PodInitialized: "True ", v1.ContainersReady: "True ", v1.PodReady: "False ReadinessGatesNotReady",
		}},
		"the sidecar starts again": {[]func(*container){ended, starting, started}, false, v1.PodRunning, map[v1.PodConditionType]string{
			v1.PodInitialized: "True ", v1.ContainersReady: "False ContainersNotReady", v1.PodReady: "False ContainersNotReady",
		}},
		"over": {[]func(*container){ended, failedWell, ended}, true, v1.PodSucceeded, map[v1.PodConditionType]string{
			v1.PodInitialized: "True PodCompleted", v1.ContainersReady: "False PodCompleted", v1.PodReady: "False PodCompleted",
		}},
		"failed": {[]func(*container){ended, ended, failedWell}, true, v1.PodFailed, map[v1.PodConditionType]string{
			v1.PodInitialized: "True ", v1.ContainersReady: "False PodFailed", v1.PodReady: "False PodFailed",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod, all := podOf(t, "osm")
			pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "gate"}}
			for i, f := range test.states {
				f(all[i])
			}
			s := statusOf(pod, all, test.ended, time.Now())
			got := make(map[v1.PodConditionType]string)
			for _, c := range s.Conditions {
				if _, ok := test.want[c.Type]; ok {
					got[c.Type] = string(c.Status) + " " + c.Reason
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" || s.Phase != test.phase {
				t.Errorf("phase %s, want %s; conditions (-want +got):\n%s", s.Phase, test.phase, diff)
			}
		})
	}
}
