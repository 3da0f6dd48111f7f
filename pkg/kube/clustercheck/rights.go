package clustercheck

import (
	"context"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/freshmesh/freshmesh/pkg/kube"
)

// The names of the install's objects.
const (
	serverName   = "xds-server"
	headlessName = "xds-server-headless"
	roleName     = "freshmesh-xds-server"
	policyName   = "freshmesh-injection"
	configName   = "injection"
)

// applyAgain names no directory of ours: applied as it is, it would undo what an
// install sets, its images first.
const applyAgain = "Apply your install again: kubectl apply -k, or helm upgrade (docs/install.md)."

// checkRights asks for every right: whether we have it, which is what `xds-server
// serve` with the same kubeconfig needs, and whether the install's service account does.
func (c *checker) checkRights(ctx context.Context) {
	c.reviews(ctx, "this user", "Bind the ClusterRole "+roleName+" to this user, or use another kubeconfig.",
		func(a *authorizationv1.ResourceAttributes) (authorizationv1.SubjectAccessReviewStatus, error) {
			review, err := c.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: a},
			}, metav1.CreateOptions{})
			if err != nil {
				return authorizationv1.SubjectAccessReviewStatus{}, err
			}
			return review.Status, nil
		})
	account := "system:serviceaccount:" + c.Namespace + ":" + serverName
	c.reviews(ctx, account, applyAgain,
		func(a *authorizationv1.ResourceAttributes) (authorizationv1.SubjectAccessReviewStatus, error) {
			review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{
					User: account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + c.Namespace, "system:authenticated"}, ResourceAttributes: a,
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return authorizationv1.SubjectAccessReviewStatus{}, err
			}
			return review.Status, nil
		})
}

// reviews asks for all rights of one subject. What is not required is a warning: it costs only what needs it.
func (c *checker) reviews(ctx context.Context, who, remedy string,
	ask func(*authorizationv1.ResourceAttributes) (authorizationv1.SubjectAccessReviewStatus, error),
) {
	granted := 0
	for _, right := range kube.Rights() {
		resource := right.Resource
		if right.Group != "" {
			resource += "." + right.Group
		}
		var denied []string
		for _, verb := range right.Verbs {
			status, err := ask(&authorizationv1.ResourceAttributes{Group: right.Group, Resource: right.Resource, Verb: verb})
			if err != nil {
				c.unknown("rights", "create subjectaccessreviews", err)
				return
			}
			if status.Allowed {
				granted++
			} else {
				denied = append(denied, verb)
			}
		}
		if len(denied) == 0 {
			continue
		}
		state := Missing
		if !right.Required {
			state = Warning
		}
		c.report.add("rights", state, remedy, "%s cannot %s %s", who, strings.Join(denied, ", "), resource)
		if ctx.Err() != nil {
			return
		}
	}
	if granted > 0 {
		c.report.add("rights", OK, "", "%s has %d rights that are needed", who, granted)
	}
}
