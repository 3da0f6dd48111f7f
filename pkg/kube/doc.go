// Package kube is a mesh.Source over a Kubernetes API server. It is the only
// package of freshmesh that uses client-go's machinery. It needs the rights
// get, list and watch, and never writes.
//
// # What it holds
//
// One client-go Reflector for each kind lists, watches, follows bookmarks, and
// recovers from expired versions. Each object is converted as it comes off the
// wire and handed to the sink; what stays here is a name, a UID and a resource
// version for each, which tell deletions and compare with live reads. An informer would keep a second
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
// bookmarks. When nothing was heard for a sixth of Config.CheckInterval, a live
// list of one Service is asked for, which also tells that the server reaches its
// store. A probe that gets no answer closes all connections (at most every
// second time), so that watches on a dead one begin anew.
//
//	not connected ── the server answers, and both required kinds succeed ──▶ connected
//	connected ── no answer, 401, 5xx, or a required kind fails ──▶ not connected
//
// A server that answers 429 is there, and limits our requests: that is the reason then, with what it asks to
// wait, and nothing is sent for so long (at most a minute at a time; counted). Watches that are open go on.
//
// # How it knows that a watch delivers
//
// A watch that lost its way looks like one of a quiet resource, so each kind is
// checked twice in each Config.CheckInterval, past every cache. The version of a
// live list of one object is compared with the watermark, the version up to which
// everything was delivered (versions can be compared: KEP-5504):
//
//	below the watermark ─────────────────────────────▶ rewound: listed anew
//	the watermark has passed the live version of last time ──▶ proven, until then
//	it has not; or the feed was cut off since; or 20 intervals have passed:
//	    everything is listed live, page by page, the watch gets a grace,
//	    and names, UIDs and versions are compared
//	        equal ───────────────────────────────────▶ proven
//	        a change from before the listing is missing,
//	          and the watch has passed it, or stood still ──▶ deaf: listed anew
//	          and the watch brings older ones, or this machine does not
//	          get to run ────────────────────────────▶ it gets another grace, within an interval
//	        an object is older than what was delivered ──▶ rewound: listed anew
//
// So that a quiet kind is proven too, watches are asked to last a third of the
// interval only: API servers send a bookmark before they end one. One that neither
// speaks nor ends in time is given up, and the kind listed anew (silent; less and less
// often while that finds nothing). A list that is not answered within the interval is
// asked for again (no-answer). All of these are counted, logged, and shown by the audit.
//
// The grace, the wait for an answer and that for a silent watch grow with what the server's
// answers took lately (pace), up to half an interval, and an interval for the watch: a server or a machine that is slow is no reason to
// list anything anew, which would load it more.
//
// A server that was restored to an older state may have changed on from there,
// and use versions anew. So what is delivered after a rewind carries its count
// (mesh.Meta.Rewinds), which goes before the versions. No failure takes anything
// away: only a listing, or an event, does.
//
// # Concurrency
//
// Run owns all goroutines and waits for them. A feed belongs to its Reflector's
// goroutine; what its checker compares (held) and the way to have it listed anew
// (restarts) are leaves with a mutex, and so is the state behind Status.
package kube
