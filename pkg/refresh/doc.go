// Package refresh leads from "connect keeps failing" back to "ask again": it
// takes the failures that proxies report, finds out who is wrong, and does the
// least that cures it.
//
//	report ──► does the node hold what the store holds?
//	             no ──────────────────────────► node-behind: send it again
//	             yes ─► read the service live, does the store agree?
//	                      read failed ────────► unverified
//	                      no, store updated ──► store-behind: the publish reaches the node
//	                      yes ────────────────► current: nothing is sent
//
// It is called by whatever takes reports (the load reporting service), through
// [Refresher.Submit], which never blocks: reports of one node and cluster are
// added up while they wait, and what finds no room is counted and dropped; the
// proxy that still fails will say so again.
//
// Reports are claims of clients, and a client may be broken or lie. So every
// remedy has a budget: live reads are shared by all who report the same
// service (one in flight, its result good for a second), and are limited in
// all; resends are limited by node, and back off for each node and cluster.
// Node ids cost nothing to invent: all that were never seen to subscribe to
// what they report share the budget of one node, and a tenth of the memory.
// What a budget holds back is not lost but looked at again when there is room.
//
// Concurrency: all decisions are made by a pure core without goroutine, clock
// or I/O. One goroutine, [Refresher.Run], owns it. Live reads run in goroutines
// of their own, which Run waits for.
package refresh
