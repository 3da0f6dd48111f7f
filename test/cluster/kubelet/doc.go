// Package kubelet plays the kubelet of one node, honestly enough for a mesh to
// be judged by it: it is a user of the API with a node's rights, and runs the
// containers of its pods as real processes, each pod in a network namespace of its
// own, each container in a root directory of its own.
//
//	API server ──watch──▶ Kubelet ──▶ worker (one for each pod) ──▶ container processes
//	     ▲                                │ plan: what to start next     │ exits, probes
//	     └──── status, in order ──────────┴──────────────────────────────┘
//
// What it does as the real one (k8s.io/kubernetes/pkg/kubelet, v1.37):
//
//   - init containers one after the other; native sidecars (restartPolicy Always)
//     among them, each started before the next may begin; then the others at once;
//   - startup, liveness and readiness probes; readiness gates; restarts with back-off;
//   - volumes: emptyDir, configMap, secret, downwardAPI, projected with service
//     account tokens, which are asked for from the API and renewed; environment;
//   - the end of a pod, below; and the order of what is written to its status.
//
// # The end of a pod
//
// All containers begin at once, native sidecars too. Each runs its preStop (exec,
// httpGet, whose status is ignored, or sleep), then waits for its turn, then gets
// SIGTERM, and SIGKILL when the grace period of the pod is over, but not within 2 s.
// It is at once the turn of an application container; of a native sidecar when
// all application containers and all later sidecars have ended.
//
//	deletionTimestamp ─▶ preStop of all ─▶ SIGTERM, apps ─ended─▶ SIGTERM, last sidecar ─▶ … ─▶ first
//	                                                              ─▶ status ─▶ deletion with grace period 0
//
// Readiness is probed, and written, to the end. What else changes is written once, at the end.
//
// Not played: cgroups and limits, images (a name stands for a program of the
// host), host namespaces, eviction, device plugins, restart of the kubelet.
//
// # Concurrency
//
// Run owns all goroutines of a Kubelet. A worker owns one pod's state; others send
// it functions. Die, Revive and the Trace may be used by any goroutine.
package kubelet
