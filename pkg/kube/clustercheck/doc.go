// Package clustercheck is the command "xds-server check": it looks at a cluster
// and says what is missing for freshmesh to work there, each time with what
// helps. It reads, and asks for reviews of rights; it changes nothing.
//
//	0  nothing is missing (there may be warnings)
//	1  something is missing
//	2  the cluster could not be asked, or the command line is wrong
//
// What it looks at:
//
//	server    the API server answers, its version, and how far its clock is from ours
//	api       the API groups that are needed
//	rights    every right of kube.Rights: ours, and those of the install's service account
//	install   the install's own objects, and whether its pods are ready
//	inject    the policy's objects, and pods of labelled namespaces that lack the proxy
//	ports     the admin side of each replica, through the API server
//
// Whatever cannot be judged because a right is missing for it is a warning that
// says so: unknown is never "ok".
//
// Concurrency: everything runs on the caller's goroutine, one request after the other.
package clustercheck
