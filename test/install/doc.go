// Package install tests what is installed on a cluster: that the manifests are
// what the API takes, the chart renders the same objects as kustomize, the
// rights are those that the code uses, and the admission policy makes the same
// pods as `xds-server inject`, judged by the API server's own evaluation of
// policies. It is a module of its own, for Helm, kustomize and the API server
// would weigh on ours.
package install
