// Package history remembers what was published and why, within bounds, and
// tells from that the story of one cluster, one endpoint and one node: which
// event of Kubernetes changed it, when that was published, when the node was sent
// it, when it acknowledged, and what it holds now.
//
//	loop ──Add──► Log ──Of──┐
//	                        ├─► Tell ──► Story     GET /explain
//	what the streams say ───┘
//
// A Log has one writer, the control plane's loop, and any number of readers; a
// small mutex guards it. Adding costs what was added. Everything else is pure.
//
// The log holds lines: one for each change of a resource, and one for each
// endpoint that came, went or changed by it. At the default of 65,536 lines it takes
// 10 to 30 MB when full; the oldest changes go first, and are counted. What was
// there at the start is not in it. It tells of the form that a node sees that
// says nothing of itself: what one node's zone or name make of that is in what it holds.
package history
