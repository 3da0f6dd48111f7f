// Package inject adds the proxy to pods: the native sidecar before all other
// init containers, the barrier as preStop of every container that has none, and
// on request the step that redirects the pod's connections. It is the command
// "xds-server inject", and makes the same pods as the admission policy in
// configs/kubernetes/injection; test/install compares the two.
//
// What is added depends on the pod's own annotations and on a Config, which the
// ConfigMap beside the policy holds. A pod that has the proxy already keeps it
// as it is, so a second pass changes nothing.
//
// Documents reads YAML or JSON. What is not a workload comes out byte for byte;
// what is changed comes out as YAML with its keys sorted, without its comments,
// and with all of its fields, known or not.
//
// Everything runs on the caller's goroutine.
package inject
