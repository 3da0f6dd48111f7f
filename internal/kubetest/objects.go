package kubetest

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is what the server holds: a *corev1.Service, Pod, Node or Namespace,
// or a *discoveryv1.EndpointSlice.
type Object interface {
	runtime.Object
	metav1.Object
}

// plural is the resource's name in paths; "" for what the server does not hold.
func plural(o Object) string {
	switch o.(type) {
	case *corev1.Service:
		return "services"
	case *discoveryv1.EndpointSlice:
		return "endpointslices"
	case *corev1.Pod:
		return "pods"
	case *corev1.Node:
		return "nodes"
	case *corev1.Namespace:
		return "namespaces"
	}
	return ""
}

// listTypes has, for each plural, the kind of a list and its API version.
var listTypes = map[string][2]string{
	"services": {"ServiceList", "v1"}, "pods": {"PodList", "v1"}, "nodes": {"NodeList", "v1"},
	"namespaces": {"NamespaceList", "v1"}, "endpointslices": {"EndpointSliceList", "discovery.k8s.io/v1"},
}

// Service makes a service of the namespace default with one HTTP port.
func Service(name string, port int32) *corev1.Service {
	http := "http"
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{Kind: "Service", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: port, AppProtocol: &http}}},
	}
}

// Slice makes a slice of the namespace default with one ready endpoint. Where
// the address is IP:PORT, the slice has that port; otherwise it has none.
func Slice(name, service, address string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if a, err := netip.ParseAddrPort(address); err == nil {
		http, port := "http", int32(a.Port())
		address = a.Addr().String()
		slice.Ports = []discoveryv1.EndpointPort{{Name: &http, Port: &port}}
	}
	slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{address}}}
	return slice
}

// Node makes a node.
func Node(name string) *corev1.Node {
	return &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
}
