// Package kube is a mesh.Source over a Kubernetes API server. It is the only
// package of freshmesh that uses client-go's machinery. It needs the rights
// get, list and watch, and never writes.
//
// # What it holds
//
// One client-go Reflector for each kind lists, watches, follows bookmarks, and
// recovers from expired versions. Each object is converted as it comes off the
// wire and handed to the sink; what stays here is a name and a UID for each,
// which tells deletions after a new listing. An informer would keep a second
// copy of everything, and its back-off of up to a minute cannot be changed;
// this one waits at most 3 s.
//
// # What is required
//
// Services and EndpointSlices are required: the source is synced when both have
// been listed, and is not connected while either cannot be. Pods, Nodes and
// Namespaces may be forbidden: that is a Problem ("Node *"), and costs only
// what needs them. Any other failure of theirs is waited for.
//
// # How it knows that the server is there
//
// Every request of every kind is observed: its answer, its events and
// bookmarks. When nothing was heard for Config.ProbeInterval, a live list of
// one Service is asked for, which also tells that the server reaches its
// store. A probe that gets no answer closes all connections (at most every
// second interval), so that watches on a dead one begin anew. A watch without
// event or bookmark for 3 minutes (bookmarks come about every minute) is ended,
// and its kind listed again.
//
//	not connected ── the server answers, and both required kinds succeed ──▶ connected
//	connected ── no answer, 401, 5xx, or a required kind fails ──▶ not connected
//
// # Concurrency
//
// Run owns all goroutines and waits for them. A feed belongs to its
// Reflector's goroutine. The state behind Status is a leaf with a mutex.
package kube
