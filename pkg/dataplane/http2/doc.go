// Package http2 relays HTTP/2 frame by frame: a Server has a client's
// connection, a Pool those to one endpoint, and a Handler says for each request which way it goes.
//
//	client ══ Server ── stream ──(Far)──▶ call ── endpointConn ══ endpoint
//	                      ▲                 │        │
//	                      └─────(Near)──────┘       Pool ◀── Handler says: Decision.To
//
// # Where to begin
//
// handler.go has the words: Handler, Decider, Decision and Ticket for those who decide, Opener, Near and Far for the two
// sides of a request. A request is then followed through
//
//   - server.go, serverframes.go, serverlate.go: a client's connection, and what its frames do, on streams that are over too;
//   - stream.go, with streambody.go, streamnear.go and streamreply.go: the request, and the answers to it;
//   - pool.go, with pooldial.go and poolqueue.go: a place on a connection to the endpoint, and the wait for one;
//   - endpointconn.go, endpointframes.go, call.go: that connection, and what the answer's frames do.
//
// Below them lie link (the protocol of a connection without its streams: windows, budgets, settings, silence, the end)
// and wire (its bytes). Beside them are Answering and Asking, for what must wait, and config.go, abuse.go, defect.go.
//
// # What is promised
//
// Stream ids are translated, header lists decoded, judged and encoded anew (package header), bodies passed on as their
// bytes come. Nothing is read from a peer beyond what its windows allow, and a stream's window is given back only when
// the bytes have been written to the other side: for each stream and direction no more than Config.StreamWindow is ever
// held. The window of an answer begins with at most 64 KiB of that; those of the answers to one client do not grow by
// more than Config.MaxBuffered together (stream.grow). A connection's own window is given back at once, so that a
// stream which nobody reads holds no other up; only a client that has us hold Config.MaxBuffered waits with all of its streams.
//
// # A request
//
//	           Request says       a place was had         final head
//	deciding ──────────────▶ waiting ──────────▶ sending ───────────▶ answered ──both ends──▶ closed
//	   ▲  │                    │   Failed, or Response  │                │
//	   │  └─ Reply, Error ─────┼─▶ replying ◀───────────┼── broken off ──┘
//	   └──── another Decision ─┴────────────────────────┘
//
// The two directions end each for itself: an answer may be over before its request is, and then the request goes on,
// until the endpoint resets it. Until the final head goes to the client another attempt can be made, as long as all of
// the request's body is still kept (Config.ReplayBytes).
//
// # Ownership
//
// Each connection has one goroutine, which reads; there is none for a stream. What it decides stands under the
// connection's mutex, for the readers of other connections send through it too. Locks are taken in the order client's
// connection (or an Asking), Pool, endpoint's connection, and no two of a kind: so a Far may be called with the Near's
// lock held, and never the other way round.
//
// A *call or *stream is used again by its connection, for another request and with another token. Whoever holds on to
// one says with each call which token it means, and an old one makes the call do nothing. So neither side waits for the
// other, or takes its lock, to learn that a request is over.
//
// Nobody waits in a write. What a reader's batch leads to is written when that reader would wait (type Turn): once for
// each connection, without blocking. What the socket does not take gets a goroutine until it does; while it has not,
// data stays in the streams' queues.
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
