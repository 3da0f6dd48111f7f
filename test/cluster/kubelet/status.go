package kubelet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reasons of conditions, as kubelet has them (pkg/kubelet/status/generate.go).
const (
	containersNotReady       = "ContainersNotReady"
	containersNotInitialized = "ContainersNotInitialized"
	readinessGatesNotReady   = "ReadinessGatesNotReady"
	podCompleted             = "PodCompleted"
	podFailed                = "PodFailed"
)

// statusOf gives the status of a pod from its containers' states; ended says that all
// containers have ended for good. It is pure.
func statusOf(pod *v1.Pod, containers []*container, ended bool, now time.Time) v1.PodStatus {
	s := v1.PodStatus{QOSClass: pod.Status.QOSClass, ObservedGeneration: pod.Generation}
	for _, c := range containers {
		if c.role == main {
			s.ContainerStatuses = append(s.ContainerStatuses, c.status(now))
		} else {
			s.InitContainerStatuses = append(s.InitContainerStatuses, c.status(now))
		}
	}
	s.Phase = phase(containers, ended)
	s.Conditions = conditions(pod, containers, s.Phase, now)
	return s
}

func phase(containers []*container, ended bool) v1.PodPhase {
	if !ended {
		if ran(containers) {
			return v1.PodRunning
		}
		return v1.PodPending
	}
	for _, c := range containers {
		// A sidecar that is ended with the pod does not make it fail.
		if c.role != sidecar && (c.ended == nil || c.ended.ExitCode != 0) {
			return v1.PodFailed
		}
	}
	return v1.PodSucceeded
}

func (c *container) status(now time.Time) v1.ContainerStatus {
	// The status outlives this moment, in other goroutines: nothing of it is c's.
	started, ended := c.started, c.ended.DeepCopy()
	s := v1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, Ready: c.isReady(), Started: &started, RestartCount: int32(max(0, c.runs-1)), //nolint:gosec // small
	}
	if c.runs > 0 {
		s.ContainerID, s.ImageID = c.id(), c.spec.Image
	}
	switch {
	case c.process != nil:
		s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(c.process.began)}
		s.LastTerminationState.Terminated = ended
	case c.failed != "":
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: c.failed}
	case c.ended != nil && now.Before(c.notBefore):
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off until " + c.notBefore.Format(time.RFC3339)}
		s.LastTerminationState.Terminated = ended
	case c.ended != nil:
		s.State.Terminated = ended
	default:
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: "PodInitializing"}
	}
	return s
}

func (c *container) id() string { return fmt.Sprintf("process://%s-%d", c.spec.Name, c.runs) }

func (c *container) isReady() bool {
	if c.role == once {
		return c.done()
	}
	return c.process != nil && c.started && c.ready
}

// conditions gives those that kubelet owns, and keeps their times where the status did not change.
func conditions(pod *v1.Pod, containers []*container, phase v1.PodPhase, now time.Time) []v1.PodCondition {
	all := []v1.PodCondition{
		{Type: v1.PodReadyToStartContainers, Status: v1.ConditionTrue},
		initialized(containers, phase),
	}
	containersReady := ready(containers, phase)
	podReady := containersReady
	podReady.Type = v1.PodReady
	if podReady.Status == v1.ConditionTrue {
		if missing := gates(pod); len(missing) > 0 {
			podReady.Status, podReady.Reason = v1.ConditionFalse, readinessGatesNotReady
			podReady.Message = "readiness gates are not ready: " + strings.Join(missing, ", ")
		}
	}
	all = append(all, podReady, containersReady, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	for i := range all {
		c := &all[i]
		c.ObservedGeneration, c.LastTransitionTime = pod.Generation, metav1.NewTime(now).Rfc3339Copy()
		for _, old := range pod.Status.Conditions {
			if old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return all
}

func initialized(containers []*container, phase v1.PodPhase) v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	if phase == v1.PodSucceeded {
		c.Reason = podCompleted
		return c
	}
	if ran(containers) {
		return c
	}
	incomplete := names(containers, func(c *container) bool {
		return c.role == once && !c.done() || c.role == sidecar && !c.started
	})
	if len(incomplete) > 0 {
		c.Status, c.Reason = v1.ConditionFalse, containersNotInitialized
		c.Message = fmt.Sprintf("containers with incomplete status: %s", incomplete)
	}
	return c
}

func ready(containers []*container, phase v1.PodPhase) v1.PodCondition {
	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse}
	unready := names(containers, func(c *container) bool { return c.role != once && !c.isReady() })
	switch {
	case phase == v1.PodSucceeded:
		c.Reason = podCompleted
	case phase == v1.PodFailed:
		c.Reason = podFailed
	case len(unready) > 0:
		c.Reason, c.Message = containersNotReady, fmt.Sprintf("containers with unready status: %s", unready)
	default:
		c.Status = v1.ConditionTrue
	}
	return c
}

// gates gives the readiness gates that are not true.
func gates(pod *v1.Pod) []string {
	var missing []string
	for _, gate := range pod.Spec.ReadinessGates {
		if !slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == gate.ConditionType && c.Status == v1.ConditionTrue
		}) {
			missing = append(missing, string(gate.ConditionType))
		}
	}
	return missing
}

func names(containers []*container, which func(*container) bool) []string {
	var all []string
	for _, c := range containers {
		if which(c) {
			all = append(all, c.spec.Name)
		}
	}
	return all
}
