package inject

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// What is added to a pod has these names.
const (
	proxyContainer    = "freshmesh-proxy"
	redirectContainer = "freshmesh-redirect"
	stateVolumeName   = "freshmesh-state"
)

const (
	// proxyUID is the proxy's user. It is not that of the images (65532), which
	// applications have too: what this user sends is not redirected.
	proxyUID = 15000

	healthPort = 15021
	stateDir   = "/var/lib/freshmesh"

	// defaultGrace is what the API server writes where a pod names no grace
	// period, maxBarrier the longest time that the barrier waits; both in seconds.
	defaultGrace = 30
	maxBarrier   = 600
)

// changes is what is to be done to a pod.
type changes struct {
	// init goes before the first init container, volumes behind the last one.
	init    []corev1.Container
	volumes []corev1.Volume
	// preStop is by the index of the container.
	preStop map[int]corev1.LifecycleHandler
	// kept names the containers that keep a preStop of their own.
	kept []string
}

// changesOf gives what a pod lacks. Its error names fields below at.
func (c Config) changesOf(m *metav1.ObjectMeta, spec *corev1.PodSpec, at string) (changes, error) {
	chosen, err := c.choose(m, at)
	if err != nil {
		return changes{}, err
	}
	grace := int64(defaultGrace)
	if spec.TerminationGracePeriodSeconds != nil {
		grace = *spec.TerminationGracePeriodSeconds
	}
	out := changes{preStop: map[int]corev1.LifecycleHandler{}}
	if !HasProxy(spec) {
		out.init = []corev1.Container{chosen.proxy(grace)}
		if chosen.redirect {
			out.init = append(out.init, chosen.redirecting())
		}
		if !hasVolume(spec, stateVolumeName) {
			out.volumes = []corev1.Volume{stateVolume()}
		}
	}
	if chosen.barrier == "" {
		chosen.barrier = fmt.Sprintf("%ds", min(grace/2, maxBarrier))
	}
	for i := range spec.Containers {
		switch l := spec.Containers[i].Lifecycle; {
		case spec.Containers[i].Name == proxyContainer:
		case l != nil && l.PreStop != nil:
			if !isBarrier(l.PreStop) {
				out.kept = append(out.kept, spec.Containers[i].Name)
			}
		default:
			out.preStop[i] = corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: "/drain?timeout=" + chosen.barrier, Port: intstr.FromInt32(healthPort),
			}}
		}
	}
	return out, nil
}

// HasProxy tells whether a pod has the proxy, as a native sidecar or as a container.
func HasProxy(spec *corev1.PodSpec) bool {
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == proxyContainer {
			return true
		}
	}
	for i := range spec.Containers {
		if spec.Containers[i].Name == proxyContainer {
			return true
		}
	}
	return false
}

func hasVolume(spec *corev1.PodSpec, name string) bool {
	for i := range spec.Volumes {
		if spec.Volumes[i].Name == name {
			return true
		}
	}
	return false
}

func isBarrier(h *corev1.LifecycleHandler) bool {
	return h.HTTPGet != nil && h.HTTPGet.Port.IntValue() == healthPort
}
