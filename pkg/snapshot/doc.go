// Package snapshot is the store of what every node should hold: immutable
// snapshots of xDS resources, and who must hear of a change.
//
// One goroutine publishes; any goroutine reads. A Snapshot is immutable and
// shares all that did not change with the one before, so a publish costs what
// changed and not what exists. Each resource carries the generation of its
// last change, and each type a bounded log of changes in which a removal is a
// tombstone, so that a reader at generation G finds what it lacks without
// looking at the rest.
//
//	mesh.Update ──Publish──► Snapshot N ──► Watchers of what changed are woken
//	                            │
//	                          View      what nodes of one kind see of it
package snapshot
