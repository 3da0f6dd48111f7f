// Package audit is the command "xds-server audit": it asks one or more servers
// for GET /audit, merges what they say, prints it, and tells by its exit code
// whether every connected proxy holds what it should.
//
//	0  every connected node is fresh
//	1  some node is not, or none is connected (unless --allow-empty), or a server has not synced,
//	   or a running Envoy (--envoy-admin) has something else than it should, or servers disagree
//	2  a server or an Envoy could not be asked, or the command line is wrong
//
// Beside it stands "xds-server explain", which asks for GET /explain and tells how a node
// came to what it holds of one cluster (package history; docs/explain.md).
//
// Nodes that have disconnected are shown and do not fail it, as long as one is connected. What the servers
// that did answer say is printed even when another could not be asked.
//
// An acknowledgement says that a node took a configuration, not that it is in
// effect. With --envoy-admin the command asks the running Envoy as well, and names
// every difference to what the servers say of that node (package envoyaudit). A
// difference counts when it is there at three looks within about a second; a node without a stream at any of
// the servers cannot be judged (2).
//
// A server that has not synced knows too little for any answer: that is never
// 0. One whose source is away is named in a warning; its nodes are judged
// against what it knows.
//
// All addresses behind a server's name are asked (package replicas). Servers of
// one build hold the same resources; where their digests differ, the versions are compared one by one, and a
// difference that is older than the ack timeout is stale. One that is younger than a second is on its way.
//
// Concurrency: the servers and Envoys are asked at the same time; everything else runs on the
// caller's goroutine, which waits for all of it.
package audit
