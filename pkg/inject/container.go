package inject

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// proxy is the native sidecar (KEP-753): it starts before the application and
// ends after it, and the pod is not ready while it is not.
func (c choices) proxy(grace int64) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	return corev1.Container{
		Name: proxyContainer, Image: c.Image, RestartPolicy: &always, Env: c.env(grace),
		Ports: []corev1.ContainerPort{{Name: "mesh-health", ContainerPort: healthPort, Protocol: corev1.ProtocolTCP}},
		// The application is not started before its proxy can serve it.
		StartupProbe:   readyProbe(1, 600),
		ReadinessProbe: readyProbe(5, 3),
		Resources:      c.resources(),
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(proxyUID)), RunAsGroup: new(int64(proxyUID)),
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: stateVolumeName, MountPath: stateDir}},
	}
}

func readyProbe(period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(healthPort)}},
		PeriodSeconds: period, TimeoutSeconds: 2, FailureThreshold: failures,
	}
}

// env has the proxy's settings. The labels are those that the API server copies
// from the node (KEP-4742); where it does not, the variable is empty, which counts as not set.
func (c choices) env(grace int64) []corev1.EnvVar {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: "FRESHMESH_" + name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	value := func(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: "FRESHMESH_" + name, Value: value} }
	out := []corev1.EnvVar{
		field("POD", "metadata.name"),
		field("NAMESPACE", "metadata.namespace"),
		field("NODE_NAME", "spec.nodeName"),
		field("REGION", "metadata.labels['"+corev1.LabelTopologyRegion+"']"),
		field("ZONE", "metadata.labels['"+corev1.LabelTopologyZone+"']"),
		value("XDS_ADDRESS", c.XDSAddress),
		value("CLUSTER_DOMAIN", c.ClusterDomain),
		value("STATE_DIR", stateDir),
		// The barrier has the other half of the grace period.
		value("DRAIN_TIME", fmt.Sprintf("%ds", max(grace-grace/2, 1))),
		value("LOG_LEVEL", c.LogLevel),
		value("LOG_FORMAT", "json"),
	}
	if c.listen != "" {
		out = append(out, value("LISTEN", c.listen))
	}
	if c.redirect {
		// Redirected connections arrive at ::1 too, and inbound ones at the pod's address.
		out = append(out, value("OUTBOUND_ADDRESS", ":15001"), value("INBOUND_ADDRESS", ":15006"))
	}
	return out
}

// redirecting is the init container that leads the pod's connections to the
// proxy. A container that is not root's gets no capabilities, so it is.
func (c choices) redirecting() corev1.Container {
	return corev1.Container{
		Name: redirectContainer, Image: c.Image,
		Args:      append([]string{"redirect", fmt.Sprintf("--proxy-uid=%d", proxyUID)}, c.skip...),
		Resources: c.resources(),
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: new(false), RunAsUser: new(int64(0)), RunAsGroup: new(int64(0)),
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

// resources are the same for both: a pod needs the larger one, not the sum.
func (c choices) resources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: c.CPU, corev1.ResourceMemory: c.Memory},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: c.MemoryLimit},
	}
}

// stateVolume keeps the last good configuration over a restart of the proxy.
func stateVolume() corev1.Volume {
	size := resource.MustParse("64Mi")
	return corev1.Volume{Name: stateVolumeName, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}}
}
