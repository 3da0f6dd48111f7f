// Package audit is the command "xds-server audit": it asks one or more servers
// for GET /audit, merges what they say, prints it, and tells by its exit code
// whether every connected proxy holds what it should.
//
//	0  every connected node is fresh
//	1  some node is not, or there is no node at all (unless --allow-empty), or a server has not synced
//	2  a server could not be asked, or the command line is wrong
//
// Nodes that have disconnected are shown and do not fail it. What the servers
// that did answer say is printed even when another could not be asked.
//
// A server that has not synced knows too little for any answer: that is never
// 0. One whose source is away is named in a warning; its nodes are judged
// against what it knows.
//
// Concurrency: the servers are asked at the same time; everything else runs on the
// caller's goroutine, which waits for all of it.
package audit
