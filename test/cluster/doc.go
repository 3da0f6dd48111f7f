// Package cluster is a real Kubernetes control plane for tests: etcd, the API
// server with RBAC, the Node authorizer and all default admission, the
// controller manager and the scheduler, as processes in the sandbox that the
// calling program runs in; with faults that real ones have.
//
//	sandbox.Main ──▶ Start ──▶ Cluster: Pause, Stop, Start of its processes,
//	                           Save and Rewind of its store
//
// The nodes are played by package kubelet, names are answered by package dns.
//
// Concurrency: a Cluster belongs to one goroutine, but Admin, User and Kubeconfig
// may be used by all.
package cluster
