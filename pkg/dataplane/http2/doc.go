// Package http2 relays HTTP/2 frame by frame: a Server has a client's
// connection, a Pool those to one endpoint, and a Handler says for each request which way it goes.
//
//	client ══ Server ── Stream ──(Far)──▶ call ── Client ══ endpoint
//	                      ▲                 │        │
//	                      └─────(Near)──────┘       Pool ◀── Handler says: Decision.To
//
// Stream ids are translated, header lists decoded, judged and encoded anew
// (package header), bodies passed on as their bytes come. Nothing is read from
// a peer beyond what its windows allow, and a window is given back only when
// the bytes have been written to the other side: for each stream and direction
// no more than Config.StreamWindow is ever held. An answer begins with at most 64 KiB
// of that, and by more than Config.MaxBuffered the answers to one client do not grow
// together (Stream.grow). A connection's own window is
// given back at once, so that a stream which nobody reads holds no other up;
// only a client that has us hold Config.MaxBuffered waits with all of its streams.
//
// # A request
//
//	           Request says       a place was had         final head
//	deciding ──────────────▶ waiting ──────────▶ sending ───────────▶ answered ──both ends──▶ closed
//	   ▲  │                    │   Failed, or Response  │                │
//	   │  └─ Reply, Error ─────┼─▶ replying ◀───────────┼── broken off ──┘
//	   └──── another Decision ─┴────────────────────────┘
//
// The two sides end when each is done: an answer may be over before its
// request is, and then the request goes on, until the endpoint resets it. Until
// the final head goes to the client another attempt can be made, as long as
// all of the request's body is still kept (Config.ReplayBytes).
//
// # Ownership
//
// Each connection has one goroutine, which reads; there is none for a stream.
// What it decides stands under the connection's mutex, for other connections'
// readers send through it too. Locks are taken in the order client's
// connection, Pool, endpoint's connection, and no two of a kind: so a Far may
// be called with the Near's lock held, and never the other way round. A *call
// or *Stream is used again by its connection; whoever holds on to one has a token, which is then old.
//
// Nobody waits in a write. What a reader's batch leads to is written when that
// reader would wait (type Turn): once for each connection, without blocking; what the socket does not take gets a
// goroutine until it does, and while it has not, data stays in the streams' queues.
//
// # Goroutines that wait
//
// What cannot go on as frames goes through the same seam: Answering is an Opener whose requests a goroutine
// serves (a tunnel, an endpoint of HTTP/1.1), Asking a Near whose request a goroutine makes (a client of HTTP/1.1).
// Both get message.Request and message.Response; te: trailers is in Fields, where HTTP/1.1 has it between neighbours.
//
// A Handler that would have to wait, for discovery or for a usable endpoint, gives Decision.Later, and a goroutine
// calls Ticket.Resume. What ends requests from outside, like an ejection that closes what is established or
// the end of a drain, is Ticket.Fail and Server.FailEach.
//
// A request for which no connection has a place waits in its Pool, whose doc has the picture: for a connection that
// is being made, and where it is patient (Pool.Patient), for a place on one that is full.
//
// # A defect
//
// A panic ends the connection under whose lock, or in whose goroutine, it happened, and no more; defect.go says how.
package http2
