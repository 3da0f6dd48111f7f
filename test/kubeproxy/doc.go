// Package kubeproxy holds the oracle for which endpoints take traffic:
// kube-proxy itself. Its tests give the same EndpointSlices to kube-proxy's
// EndpointsChangeTracker and CategorizeEndpoints and to pkg/object and
// pkg/translate, and compare what is used, for every node's view.
//
// It is a module of its own because k8s.io/kubernetes is one that nothing else
// here should depend on. Run it with
//
//	cd test/kubeproxy && go test ./...
package kubeproxy
