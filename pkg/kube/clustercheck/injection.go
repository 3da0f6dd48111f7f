package clustercheck

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/freshmesh/freshmesh/pkg/inject"
)

// maxNamed bounds how many pods a finding names.
const maxNamed = 5

// checkInjection looks for the policy, and for pods that it should have changed.
func (c *checker) checkInjection(ctx context.Context) {
	get := metav1.GetOptions{}
	policies := c.client.AdmissionregistrationV1()
	for _, o := range []struct {
		kind string
		get  func() error
	}{
		{"MutatingAdmissionPolicy", func() error {
			_, err := policies.MutatingAdmissionPolicies().Get(ctx, policyName, get)
			return err
		}},
		{"MutatingAdmissionPolicyBinding", func() error {
			_, err := policies.MutatingAdmissionPolicyBindings().Get(ctx, policyName, get)
			return err
		}},
		{"ValidatingAdmissionPolicy", func() error {
			_, err := policies.ValidatingAdmissionPolicies().Get(ctx, policyName, get)
			return err
		}},
		{"ValidatingAdmissionPolicyBinding", func() error {
			_, err := policies.ValidatingAdmissionPolicyBindings().Get(ctx, policyName, get)
			return err
		}},
	} {
		remedy := applyAgain + "\nOr use `xds-server inject`."
		if _, ok := found(c, "inject", Warning, remedy, o.kind, policyName, func() (struct{}, error) { return struct{}{}, o.get() }); ok {
			c.report.add("inject", OK, "", "%s %s", o.kind, policyName)
		}
	}
	c.checkConfig(ctx)
	c.checkPods(ctx)
}

// checkConfig reads what proxies start with. Without it, the policy refuses every pod.
func (c *checker) checkConfig(ctx context.Context) {
	m, ok := found(c, "inject", Missing, applyAgain, "ConfigMap", configName, func() (*corev1.ConfigMap, error) {
		return c.client.CoreV1().ConfigMaps(c.Namespace).Get(ctx, configName, metav1.GetOptions{})
	})
	if !ok {
		return
	}
	config, err := inject.ConfigOf(m.Data)
	if err != nil {
		c.report.add("inject", Missing, applyAgain, "ConfigMap %s: %s", configName, strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	if host := headlessName + "." + c.Namespace + "."; !strings.HasPrefix(config.XDSAddress, host) {
		c.report.add("inject", Warning, "Give it the name of the headless service, which has the addresses of all replicas.",
			"ConfigMap %s: xds-address %s is not of %s*", configName, config.XDSAddress, host)
		return
	}
	c.report.add("inject", OK, "", "ConfigMap %s: image %s, xds-address %s", configName, config.Image, config.XDSAddress)
}

// checkPods looks for pods of labelled namespaces that are older than the label.
func (c *checker) checkPods(ctx context.Context) {
	namespaces, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: inject.Inject + "=" + inject.Enabled})
	if err != nil {
		c.unknown("inject", "list namespaces", err)
		return
	}
	if len(namespaces.Items) == 0 {
		c.report.add("inject", OK, "", "no namespace is labelled %s=%s", inject.Inject, inject.Enabled)
	}
	for i := range namespaces.Items {
		name := namespaces.Items[i].Name
		pods, err := c.client.CoreV1().Pods(name).List(ctx, metav1.ListOptions{})
		if err != nil {
			c.unknown("inject", "list pods", err)
			return
		}
		c.judgePods(name, pods.Items)
	}
}

func (c *checker) judgePods(namespace string, pods []corev1.Pod) {
	var without []string
	with := 0
	for i := range pods {
		switch p := &pods[i]; {
		case p.Status.Phase == corev1.PodSucceeded, p.Status.Phase == corev1.PodFailed, inject.PassedOver(&p.ObjectMeta, &p.Spec) != "":
		case inject.HasProxy(&p.Spec):
			with++
		default:
			without = append(without, p.Name)
		}
	}
	if len(without) == 0 {
		c.report.add("inject", OK, "", "namespace %s: %d pods have the proxy", namespace, with)
		return
	}
	slices.Sort(without)
	named := strings.Join(without[:min(len(without), maxNamed)], ", ")
	if more := len(without) - maxNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	c.report.add("inject", Warning, "kubectl -n "+namespace+" rollout restart deployment,statefulset,daemonset",
		"namespace %s: %d pods have no proxy: %s", namespace, len(without), named)
}
