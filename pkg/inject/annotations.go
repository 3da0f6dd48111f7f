package inject

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The label of namespaces and pods, and the annotations of pods. docs/install.md explains them.
const (
	// Inject is a label of namespaces and a label or annotation of pods: Enabled or disabled.
	Inject   = prefix + "inject"
	Enabled  = "enabled"
	disabled = "disabled"

	prefix            = "freshmesh.dev/"
	drainTimeout      = prefix + "drain-timeout"
	proxyImage        = prefix + "proxy-image"
	proxyCPU          = prefix + "proxy-cpu"
	proxyMemory       = prefix + "proxy-memory"
	proxyMemoryLimit  = prefix + "proxy-memory-limit"
	proxyLogLevel     = prefix + "proxy-log-level"
	listen            = prefix + "listen"
	redirect          = prefix + "redirect"
	skipOutboundPorts = prefix + "skip-outbound-ports"
	skipInboundPorts  = prefix + "skip-inbound-ports"
	skipUIDs          = prefix + "skip-uids"

	// mirror marks what a kubelet runs by itself (Kubernetes, "Well-known labels, annotations and taints").
	mirror = "kubernetes.io/config.mirror"
)

// choices is what one pod's annotations choose.
type choices struct {
	Config
	// barrier is "" for half of the pod's grace period.
	barrier  string
	listen   string
	redirect bool
	// skip are the flags of the redirecting step.
	skip []string
}

var seconds = regexp.MustCompile(`^([0-9]|[1-9][0-9]|[1-5][0-9][0-9]|600)s$`)

// choose reads the annotations of a pod. The error joins one line for each
// wrong one, which begins with its field below at.
func (c Config) choose(m *metav1.ObjectMeta, at string) (choices, error) {
	out := choices{Config: c}
	var wrong []error
	take := func(from map[string]string, what, name string, use func(value string) error) {
		if value, ok := from[name]; ok {
			if err := use(value); err != nil {
				wrong = append(wrong, fmt.Errorf("%smetadata.%s[%s]: %w", at, what, name, err))
			}
		}
	}
	annotation := func(name string, use func(value string) error) { take(m.Annotations, "annotations", name, use) }
	take(m.Labels, "labels", Inject, enabledOrDisabled(new(bool)))
	annotation(Inject, enabledOrDisabled(new(bool)))
	annotation(redirect, enabledOrDisabled(&out.redirect))
	annotation(drainTimeout, func(value string) error {
		if out.barrier = value; !seconds.MatchString(value) {
			return fmt.Errorf("%q: want whole seconds from 0s to 600s, such as 25s", value)
		}
		return nil
	})
	for _, s := range settings {
		if s.annotation != "" {
			annotation(s.annotation, func(value string) error { return s.set(&out.Config, value) })
		}
	}
	annotation(listen, func(value string) error {
		out.listen = value
		return judgeListen(value)
	})
	for _, s := range skipped {
		annotation(s.name, func(value string) error {
			out.skip = append(out.skip, "--"+strings.TrimPrefix(s.name, prefix)+"="+value)
			return s.judge(value)
		})
	}
	return out, errors.Join(wrong...)
}

// numbers is an annotation with a list of them, which is also a flag of the redirecting step.
type numbers struct {
	name        string
	least, most uint64
	meaning     string
}

var skipped = []numbers{
	{skipOutboundPorts, 1, math.MaxUint16, "ports from 1 to 65535"},
	{skipInboundPorts, 1, math.MaxUint16, "ports from 1 to 65535"},
	{skipUIDs, 0, math.MaxUint32 - 1, "user ids"},
}

// judge is as strict as the policy, whose language reads only plain numbers.
func (s numbers) judge(value string) error {
	for part := range strings.SplitSeq(value, ",") {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil || n < s.least || n > s.most || strconv.FormatUint(n, 10) != part {
			return fmt.Errorf("%q: want %s, separated by commas", value, s.meaning)
		}
	}
	return nil
}

func enabledOrDisabled(into *bool) func(string) error {
	return func(value string) error {
		if *into = value == Enabled; value != Enabled && value != disabled {
			return fmt.Errorf("%q: want enabled or disabled", value)
		}
		return nil
	}
}

// PassedOver says why a pod gets no proxy; "" where it gets one.
func PassedOver(m *metav1.ObjectMeta, spec *corev1.PodSpec) string {
	switch {
	case m.Labels[Inject] == disabled || m.Annotations[Inject] == disabled:
		return Inject + " is disabled"
	case spec.HostNetwork:
		return "it is on the host network"
	case spec.OS != nil && spec.OS.Name == corev1.Windows:
		return "it runs on Windows"
	}
	if _, ok := m.Annotations[mirror]; ok {
		return "it mirrors a static pod"
	}
	return ""
}
