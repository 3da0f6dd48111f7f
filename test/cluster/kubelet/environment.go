package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"github.com/freshmesh/freshmesh/test/cluster/sandbox"
)

// environment gives a container's environment, NAME=VALUE, and its command line. As what it
// calls, it may be used by any goroutine: probes and hooks do.
func (w *worker) environment(ctx context.Context, c *v1.Container, image Image) (env, args []string, err error) {
	values := map[string]string{
		"PATH":     "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOSTNAME": hostname(w.latest.Load()), "HOME": "/",
		"KUBERNETES_SERVICE_HOST": sandbox.APIService.String(), "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
	}
	for _, from := range c.EnvFrom {
		more, err := w.wholeSource(ctx, from)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(values, more)
	}
	expand := expansion.MappingFuncFor(values)
	for _, e := range c.Env {
		value := expansion.Expand(e.Value, expand)
		if e.ValueFrom != nil {
			if value, err = w.valueFrom(ctx, c, e.ValueFrom); err != nil {
				return nil, nil, fmt.Errorf("environment variable %s: %w", e.Name, err)
			}
		}
		values[e.Name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		env = append(env, name+"="+values[name])
	}
	command := image.Entrypoint
	if len(c.Command) > 0 {
		command = c.Command
	}
	for _, a := range slices.Concat(command, c.Args) {
		args = append(args, expansion.Expand(a, expand))
	}
	return env, args, nil
}

func (w *worker) wholeSource(ctx context.Context, from v1.EnvFromSource) (map[string]string, error) {
	values := make(map[string]string)
	switch {
	case from.ConfigMapRef != nil:
		m, err := w.node.client.CoreV1().ConfigMaps(w.latest.Load().Namespace).Get(ctx, from.ConfigMapRef.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		for k, v := range m.Data {
			values[from.Prefix+k] = v
		}
	case from.SecretRef != nil:
		s, err := w.node.client.CoreV1().Secrets(w.latest.Load().Namespace).Get(ctx, from.SecretRef.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		for k, v := range s.Data {
			values[from.Prefix+k] = string(v)
		}
	}
	return values, nil
}

func (w *worker) valueFrom(ctx context.Context, c *v1.Container, from *v1.EnvVarSource) (string, error) {
	switch {
	case from.FieldRef != nil:
		return w.field(from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		return amount(c, from.ResourceFieldRef)
	case from.ConfigMapKeyRef != nil:
		m, err := w.node.client.CoreV1().ConfigMaps(w.latest.Load().Namespace).Get(ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return m.Data[from.ConfigMapKeyRef.Key], nil
	case from.SecretKeyRef != nil:
		s, err := w.node.client.CoreV1().Secrets(w.latest.Load().Namespace).Get(ctx, from.SecretKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return string(s.Data[from.SecretKeyRef.Key]), nil
	default:
		return "", fmt.Errorf("no known source: %v", from)
	}
}

// field gives a value of the downward API.
func (w *worker) field(path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return w.latest.Load().Spec.NodeName, nil
	case "spec.serviceAccountName":
		return w.latest.Load().Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return w.node.config.Address.String(), nil
	case "status.podIP":
		return w.v4.String(), nil
	case "status.podIPs":
		return w.v4.String() + "," + w.v6.String(), nil
	default:
		return fieldpath.ExtractFieldPathAsString(w.latest.Load(), path)
	}
}

// amount gives a limit or request of this container, in units of the divisor, rounded up.
func amount(c *v1.Container, from *v1.ResourceFieldSelector) (string, error) {
	divisor := from.Divisor.MilliValue()
	if divisor == 0 {
		divisor = 1000
	}
	amounts := map[string]int64{
		"limits.cpu": c.Resources.Limits.Cpu().MilliValue(), "requests.cpu": c.Resources.Requests.Cpu().MilliValue(),
		"limits.memory": c.Resources.Limits.Memory().MilliValue(), "requests.memory": c.Resources.Requests.Memory().MilliValue(),
	}
	n, ok := amounts[from.Resource]
	if !ok {
		return "", fmt.Errorf("resource %s is not known here", from.Resource)
	}
	return strconv.FormatInt((n+divisor-1)/divisor, 10), nil
}
