package object

import (
	"net/netip"
	"slices"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	corev1 "k8s.io/api/core/v1"
)

// defaultServiceAccount is what the API server writes where a pod names none.
const defaultServiceAccount = "default"

func pod(m mesh.Meta, o *corev1.Pod, p *problems) mesh.Object {
	out := &mesh.Pod{
		Meta:            m,
		IPs:             podIPs(o, p),
		NodeName:        o.Spec.NodeName,
		ServiceAccount:  o.Spec.ServiceAccountName,
		Hostname:        o.Spec.Hostname,
		Subdomain:       o.Spec.Subdomain,
		Terminating:     o.DeletionTimestamp != nil,
		Ended:           o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed,
		ReadyContainers: readyContainers(o),
	}
	if out.ServiceAccount == "" {
		out.ServiceAccount = defaultServiceAccount
	}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return out
}

// podIPs are status.podIPs, or else the one status.podIP.
func podIPs(o *corev1.Pod, p *problems) []netip.Addr {
	var out []netip.Addr
	for i, ip := range o.Status.PodIPs {
		if a, ok := address(ip.IP, index("status.podIPs", i)+".ip", p); ok {
			out = append(out, a)
		}
	}
	if len(o.Status.PodIPs) == 0 && o.Status.PodIP != "" {
		if a, ok := address(o.Status.PodIP, "status.podIP", p); ok {
			out = append(out, a)
		}
	}
	return out
}

// readyContainers names the ready containers and native sidecars, sorted. An
// init container that runs to its end is "ready" too once it has; it is none of these.
func readyContainers(o *corev1.Pod) []string {
	var out []string
	for _, s := range o.Status.ContainerStatuses {
		if s.Ready {
			out = append(out, s.Name)
		}
	}
	for _, s := range o.Status.InitContainerStatuses {
		if s.Ready && isSidecar(o, s.Name) {
			out = append(out, s.Name)
		}
	}
	slices.Sort(out)
	return out
}

// isSidecar tells whether the named init container restarts always (KEP-753).
func isSidecar(o *corev1.Pod, name string) bool {
	for i := range o.Spec.InitContainers {
		c := &o.Spec.InitContainers[i]
		if c.Name == name {
			return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}
	}
	return false
}

func node(m mesh.Meta, o *corev1.Node) mesh.Object {
	return &mesh.Node{Meta: m, Zone: o.Labels[corev1.LabelTopologyZone], Region: o.Labels[corev1.LabelTopologyRegion]}
}

func namespace(m mesh.Meta, o *corev1.Namespace) mesh.Object {
	return &mesh.Namespace{
		Meta:        m,
		Terminating: o.DeletionTimestamp != nil || o.Status.Phase == corev1.NamespaceTerminating,
	}
}
