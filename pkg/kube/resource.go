package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typeddiscoveryv1 "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// resource is one of the resources that are read.
type resource struct {
	kind     mesh.Kind
	plural   string
	required bool
	example  runtime.Object
	list     func(context.Context, kubernetes.Interface, metav1.ListOptions) (runtime.Object, error)
	watch    func(context.Context, kubernetes.Interface, metav1.ListOptions) (watch.Interface, error)
}

// api is what client-go's typed clients have in common.
type api[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func newResource[L runtime.Object, A api[L]](kind mesh.Kind, plural string, required bool, example runtime.Object, of func(kubernetes.Interface) A) resource {
	return resource{
		kind: kind, plural: plural, required: required, example: example,
		list: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (runtime.Object, error) {
			return of(c).List(ctx, o)
		},
		watch: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (watch.Interface, error) {
			return of(c).Watch(ctx, o)
		},
	}
}

// resources are all that is read, in the order in which reasons name them.
var resources = [...]resource{
	newResource(mesh.KindService, "services", true, &corev1.Service{},
		func(c kubernetes.Interface) typedcorev1.ServiceInterface { return c.CoreV1().Services("") }),
	newResource(mesh.KindEndpointSlice, "endpointslices", true, &discoveryv1.EndpointSlice{},
		func(c kubernetes.Interface) typeddiscoveryv1.EndpointSliceInterface {
			return c.DiscoveryV1().EndpointSlices("")
		}),
	newResource(mesh.KindPod, "pods", false, &corev1.Pod{},
		func(c kubernetes.Interface) typedcorev1.PodInterface { return c.CoreV1().Pods("") }),
	newResource(mesh.KindNode, "nodes", false, &corev1.Node{},
		func(c kubernetes.Interface) typedcorev1.NodeInterface { return c.CoreV1().Nodes() }),
	newResource(mesh.KindNamespace, "namespaces", false, &corev1.Namespace{},
		func(c kubernetes.Interface) typedcorev1.NamespaceInterface { return c.CoreV1().Namespaces() }),
}
