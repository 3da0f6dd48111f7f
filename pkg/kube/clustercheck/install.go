package clustercheck

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/freshmesh/freshmesh/pkg/kube"
)

// found reads one object. It notes what is not there, or not known, and gives false then.
func found[T any](c *checker, check string, lacking State, remedy, kind, name string, get func() (T, error)) (T, bool) {
	o, err := get()
	switch {
	case err == nil:
		return o, true
	case apierrors.IsNotFound(err):
		c.report.add(check, lacking, remedy, "%s %s does not exist", kind, name)
	default:
		c.unknown(check, "get "+plural(kind), err)
	}
	return o, false
}

// plural is the resource of a kind.
func plural(kind string) string {
	kind = strings.ToLower(kind)
	if stem, ok := strings.CutSuffix(kind, "y"); ok {
		return stem + "ies"
	}
	return kind + "s"
}

// checkInstall looks for the control plane's objects.
func (c *checker) checkInstall(ctx context.Context) {
	get := metav1.GetOptions{}
	core := c.client.CoreV1()
	before := len(c.report.Findings)
	if _, ok := found(c, "install", Missing, applyAgain, "Namespace", c.Namespace, func() (*corev1.Namespace, error) {
		return core.Namespaces().Get(ctx, c.Namespace, get)
	}); !ok && c.report.Findings[before].State == Missing {
		return // nothing can be in it
	}
	if _, ok := found(c, "install", Missing, applyAgain, "ServiceAccount", serverName, func() (*corev1.ServiceAccount, error) {
		return core.ServiceAccounts(c.Namespace).Get(ctx, serverName, get)
	}); ok {
		c.report.add("install", OK, "", "ServiceAccount %s", serverName)
	}
	if role, ok := found(c, "install", Missing, applyAgain, "ClusterRole", roleName, func() (*rbacv1.ClusterRole, error) {
		return c.client.RbacV1().ClusterRoles().Get(ctx, roleName, get)
	}); ok {
		c.judgeRole(role)
	}
	for _, name := range []string{serverName, headlessName} {
		if s, ok := found(c, "install", Missing, applyAgain, "Service", name, func() (*corev1.Service, error) {
			return core.Services(c.Namespace).Get(ctx, name, get)
		}); ok {
			c.judgeService(s)
		}
	}
	if d, ok := found(c, "install", Missing, applyAgain, "Deployment", serverName, func() (*appsv1.Deployment, error) {
		return c.client.AppsV1().Deployments(c.Namespace).Get(ctx, serverName, get)
	}); ok {
		c.judgeDeployment(d)
	}
	c.exists("PodDisruptionBudget", "nothing keeps one replica up while nodes are drained", func() error {
		_, err := c.client.PolicyV1().PodDisruptionBudgets(c.Namespace).Get(ctx, serverName, get)
		return err
	})
	c.exists("NetworkPolicy", "the admin side, which shows the whole mesh, is open to every pod", func() error {
		_, err := c.client.NetworkingV1().NetworkPolicies(c.Namespace).Get(ctx, serverName, get)
		return err
	})
}

// exists looks for what is good to have.
func (c *checker) exists(kind, without string, get func() error) {
	if _, ok := found(c, "install", Warning, applyAgain, kind, serverName+" (without it, "+without+")", func() (struct{}, error) { return struct{}{}, get() }); ok {
		c.report.add("install", OK, "", "%s %s", kind, serverName)
	}
}

// judgeRole looks for rights that nobody uses: what is missing is found by the reviews.
func (c *checker) judgeRole(role *rbacv1.ClusterRole) {
	var more []string
	for _, rule := range role.Rules {
		for _, resource := range append(rule.Resources, rule.NonResourceURLs...) {
			for _, verb := range rule.Verbs {
				needed := slices.ContainsFunc(kube.Rules(), func(r rbacv1.PolicyRule) bool {
					return len(rule.APIGroups) == 1 && rule.APIGroups[0] == r.APIGroups[0] && resource == r.Resources[0] && slices.Contains(r.Verbs, verb)
				})
				if !needed {
					more = append(more, verb+" "+resource)
				}
			}
		}
	}
	if len(more) > 0 {
		c.report.add("install", Warning, applyAgain, "ClusterRole %s gives more than is used: %s", role.Name, strings.Join(more, ", "))
		return
	}
	c.report.add("install", OK, "", "ClusterRole %s gives nothing that is not used", role.Name)
}

func (c *checker) judgeService(s *corev1.Service) {
	switch {
	case s.Name == headlessName && s.Spec.ClusterIP != corev1.ClusterIPNone:
		c.report.add("install", Missing, applyAgain, "Service %s has a cluster IP: the barrier asks one replica, and not all", s.Name)
	case s.Name == headlessName && !s.Spec.PublishNotReadyAddresses:
		c.report.add("install", Warning, applyAgain, "Service %s leaves out replicas that are not ready: the barrier does not ask one that ends, though proxies may hang on it", s.Name)
	default:
		c.report.add("install", OK, "", "Service %s", s.Name)
	}
}

func (c *checker) judgeDeployment(d *appsv1.Deployment) {
	logs := "kubectl -n " + c.Namespace + " describe pods -l app.kubernetes.io/name=" + serverName
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	// Ready, not available: a rollout waits half a minute after each.
	switch ready := d.Status.ReadyReplicas; {
	case ready == 0:
		c.report.add("install", Missing, logs, "Deployment %s: none of %d replicas is ready", d.Name, wanted)
	case ready < wanted:
		c.report.add("install", Warning, logs, "Deployment %s: %d of %d replicas are ready", d.Name, ready, wanted)
	case wanted < 2:
		c.report.add("install", Warning, "kubectl -n "+c.Namespace+" scale deployment "+d.Name+" --replicas 2", "Deployment %s: one replica only", d.Name)
	default:
		c.report.add("install", OK, "", "Deployment %s: %d of %d replicas are ready", d.Name, ready, wanted)
	}
}
