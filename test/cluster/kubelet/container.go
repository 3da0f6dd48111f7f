package kubelet

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// role is what a container is in its pod.
type role int

const (
	once    role = iota // an init container that is to end
	sidecar             // an init container that is to go on: a native sidecar
	main                // an application container
)

// container is the state of one container. It belongs to the pod's worker.
type container struct {
	spec *v1.Container
	role role
	// process is nil unless it runs.
	process *process
	// runs counts its starts, and tells its ids and its probes' results apart.
	runs int
	// started: its startup probe, if any, has succeeded. ready: its readiness probe, if any, says so.
	started, ready bool
	// ended is how the last run ended, nil before that; failed why it could not be started.
	ended  *v1.ContainerStateTerminated
	failed string
	// crashes counts ends without a good run between them; notBefore is when it may start again.
	crashes   int
	notBefore time.Time
}

func containersOf(pod *v1.Pod) []*container {
	var all []*container
	for i := range pod.Spec.InitContainers {
		c := &container{spec: &pod.Spec.InitContainers[i], role: once}
		if p := c.spec.RestartPolicy; p != nil && *p == v1.ContainerRestartPolicyAlways {
			c.role = sidecar
		}
		all = append(all, c)
	}
	for i := range pod.Spec.Containers {
		all = append(all, &container{spec: &pod.Spec.Containers[i], role: main})
	}
	return all
}

// done tells whether an init container has ended well.
func (c *container) done() bool { return c.process == nil && c.ended != nil && c.ended.ExitCode == 0 }

// mayRestart tells whether it is to be started again after its end.
func (c *container) mayRestart(policy v1.RestartPolicy) bool {
	switch {
	case c.role == sidecar:
		return true
	case policy == v1.RestartPolicyNever:
		return false
	case policy == v1.RestartPolicyOnFailure || c.role == once:
		return c.ended.ExitCode != 0
	default:
		return true
	}
}
