// Package ack knows what each node was sent, holds and refused.
//
// It is pure: no goroutine, clock or I/O. The owner of a stream drives one
// Stream value and is the only one to touch it; what leaves the package (Node,
// TypeState) is a copy.
//
// For each type a stream holds everything it subscribes to as of one
// generation, except for an exception set. A name is an exception from the
// moment it is known that the node lacks its present form until the node
// acknowledges a response that carried the name; nothing else clears it:
//
//	                 changed, subscribed, asked again
//	        ┌──────────────────────────────────────────┐
//	        ▼                                          │
//	      ┌─────┐   sent in response n    ┌──────┐     │
//	──────► due ├────────────────────────►│ sent ├──ACK n──► held (no exception)
//	      └─▲─▲─┘                         └┬──┬──┘
//	        │ └── asked again: n is void ──┘  │ NACK n
//	        │                                 ▼
//	        │      the resource changes  ┌─────────┐
//	        └────────────────────────────┤ refused │
//	                                     └─────────┘
//
// What was sent may have been applied although its ACK never came, or came too
// late, or although it was refused in part. So from the first sending of another
// form until an ACK it is open what the node holds, and it counts as behind even
// when the resource has changed back.
//
// A wildcard subscriber costs a few words plus its exceptions, and an ACK
// that came for {C} says nothing of {A,B}. The idea of progress as one number
// is that of etcd's raft tracker; the exceptions are what xDS adds to it.
package ack
