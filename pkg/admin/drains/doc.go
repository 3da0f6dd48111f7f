// Package drains is the command "xds-server drain": it asks every control plane
// whether anybody still uses a pod or an endpoint, and waits until nobody does.
//
//	0  drained: all servers say so
//	1  not drained within the timeout: somebody uses it, or it is not known
//	2  a server could not be asked, or the command line is wrong
//
// All addresses behind a name are asked (package replicas), and names are resolved anew
// every few seconds, since control planes come and go.
//
// Concurrency: the servers are asked at the same time; everything else runs on
// the caller's goroutine, which waits for all of it.
package drains
