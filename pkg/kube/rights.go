package kube

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// groups are the API groups of the resources that are read; the others are in "".
var groups = map[mesh.Kind]string{mesh.KindEndpointSlice: "discovery.k8s.io"}

// Right is one resource that a Source reads.
type Right struct {
	// Group is "" for the core API.
	Group, Resource string
	// Verbs are sorted.
	Verbs []string
	// Required tells whether there is nothing to serve without it.
	Required bool
}

// Rights are all that a Source needs, sorted by group and resource: what its
// feeds list and watch, and what Read gets. A test watches that it asks for
// nothing else, and uses all of it.
func Rights() []Right {
	out := make([]Right, 0, len(resources))
	for _, r := range resources {
		right := Right{Group: groups[r.kind], Resource: r.plural, Verbs: []string{"list", "watch"}, Required: r.required}
		if r.kind == mesh.KindService {
			right.Verbs = []string{"get", "list", "watch"} // Read
		}
		out = append(out, right)
	}
	slices.SortFunc(out, func(a, b Right) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return out
}

// Rules are Rights as a ClusterRole has them, one rule for each resource.
func Rules() []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, r := range Rights() {
		out = append(out, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: r.Verbs})
	}
	return out
}

// RESTConfig is the connection that New makes for c, without its dialer and
// limits: for asking a cluster something once. It sends nothing.
func RESTConfig(c Config) (*rest.Config, error) { return restConfig(c) }

// Explain gives a failed request's reason in one line; what is the request, such as "list services",
// server the API server's host and port.
func Explain(err error, what, server string) string {
	reason, _ := explain(err, what, server)
	return reason
}
