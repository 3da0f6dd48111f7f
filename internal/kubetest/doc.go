// Package kubetest is a small Kubernetes API server for tests: get, list and
// watch of services, endpointslices, pods, nodes and namespaces, and nothing
// more, over a real listener, with switches for what goes wrong with real ones.
// It speaks HTTP/1.1 on its own listener; as an http.Handler it can be served
// by another.
//
// Concurrency: all methods are safe for concurrent use, except Start and Stop,
// which belong to the test's goroutine.
package kubetest
