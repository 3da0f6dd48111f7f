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
// A name is behind since what the node holds of it was current last (testdata/since):
// what came and went before it could be sent makes nobody late. A node of which
// nothing is known before its first ACK (Distrust) is behind since it was first sent a response
// that it has not answered, whether or not there is anything.
//
// # States
//
// From its types' exceptions a node's state is judged anew whenever somebody looks;
// nothing stores it. Of the states that apply the first of this order counts, of a
// type, of a stream over its types, and of a node over its streams (States, Judge, Merge):
//
//	disconnected   the node has no stream, or lost one of several (package xds); kept for 10 min
//	rejected       a version that is current was refused, or the last answer refused what was held
//	stale          behind for longer than AckTimeout, but for what Withholds allows; or the
//	               stream unconfirmed for longer than ProbeInterval + AckTimeout
//	pending        behind, within the deadline
//	fresh          nothing is known to be lacking, or nothing is subscribed to
//
//	                a change, a subscription          AckTimeout without an ACK
//	       ┌───────┐ ───────────────────────► ┌─────────┐ ─────────────────► ┌───────┐
//	──────►│ fresh │                          │ pending │                    │ stale │
//	       └───────┘ ◄─────────────────────── └─────────┘                    └───────┘
//	         │   ▲      ACK of all that          │    ▲                        │  │
//	         │   │      was lacking         NACK │    │ another form           │  │
//	         │   │                               ▼    │ is current             │  │
//	         │   │                          ┌──────────┐       NACK            │  │
//	         │   │                          │ rejected │◄──────────────────────┘  │
//	         │   │                          └──────────┘                          │
//	         │   └────────────────────── ACK, of a probe too ─────────────────────┤
//	         │    nothing answered for ProbeInterval + AckTimeout                 │
//	         └───────────────────────────────────────────────────────────────────►┘
//
//	any ── the last stream ends ──► disconnected ── a stream is opened ──► pending, or fresh
//
// Overdue tells when the owner must end the stream. An answer counts with the nonce
// that it answers, once: what was overtaken, given up or answered before confirms
// nothing. So a request out of the blue, an unsubscribe of what was never subscribed
// to, and an answer that comes twice change no state (testdata/healthy). Behind is counted
// in resources, versions and seconds; ConfirmedAt is each stream's own.
//
// A wildcard subscriber costs a few words plus its exceptions, and an ACK
// that came for {C} says nothing of {A,B}. The idea of progress as one number
// is that of etcd's raft tracker; the exceptions are what xDS adds to it.
package ack
