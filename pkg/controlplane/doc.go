// Package controlplane assembles the control plane: a source of Kubernetes
// objects, the loop that translates them, the store, the xDS server, the refresh
// path and the admin side.
//
//	Source ──Put, Delete──► queue ──► loop: translate, publish ──► store ──► xds
//	   ▲                                ▲                                     │
//	   └──live read── refresh ──Reconcile                        load reports │
//	                     ▲                                                    │
//	                     └────────────────────────────────────────────────────┘
//
// The loop is the only one to touch the translator and to publish. The source
// never waits for it: the queue keeps one change an object, the last.
package controlplane
