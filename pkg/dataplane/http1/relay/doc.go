// Package relay relays HTTP/1.1 from clients to endpoints. It moves messages and
// knows what happened to them; what to do then is a Handler's affair.
//
// # A request's way
//
//	Server.Serve ─ reads a head ─▶ Handler.Serve(x) ─▶ Pool.Acquire      a connection, nothing sent
//	     ▲                              │              x.Send(conn)      head and body go, the answer's head comes
//	     │                              │              x.Discard         this answer is not the last word
//	     │                              ▼              x.Relay           head and body to the client
//	     └──────── answered ─── x.end ◀─┘
//
// # Where to begin
//
// server.go has a client's connection, exchange.go what is common to the life of a request. Then follow the picture:
// send.go and wait.go (sending, and waiting for the answer), answer.go (relaying it), body.go and upload.go (a request's
// body that did not come whole). pool.go has the connections to an endpoint. Below them lie window (memory that is lent
// only while there are bytes), socket (deadlines and wakes that cost little) and instant (its clock). Beside them:
// respond.go for answers that are not relayed, tunnel.go for what is HTTP no more, call.go for clients of HTTP/2.
//
// # Ownership
//
// All of a request runs in the one goroutine of its client's connection. There is a second one only while a request's
// body, which did not come whole with its head, is being sent (body): then the first one waits for the answer, which may
// come before the body has gone. A third one looks after the client while somebody waits on Exchange.Context. No goroutine
// belongs to a connection upstream: a Conn is its request's alone, from Pool.Acquire to its release.
//
// Who is not that goroutine, and wants something of it, sets an atomic flag and wakes it by a deadline that has passed
// (socket.wake); who is woken looks at the flags (wait.judge). Server.Leave, Cut and Close, what CancelFunc gives, and
// Call.Break work so, and may be called from anywhere. A Pool is safe for concurrent use.
//
// In the ordinary case a request costs one wait and one read on the client's side, one write to the endpoint, one look
// whether that connection is still good, one read of the answer, and one write of it: head and body in one. The look is
// a read that finds nothing, and takes the place of the one that each wait for an answer would begin with (socket.ask).
// Nothing is allocated.
//
// # What the handler decides with
//
// The errors of Acquire, Send and Relay are *upstream.Error, and say what package
// upstream promises: Unsent only if no peer can have acted on the request,
// Unanswered if no byte of an answer has come, Reused if the connection had
// carried a request before and broke without an answer. After a failed Send the
// request may be sent again if Replayable: what was read of the body, up to 64
// KiB, is kept until Relay. So package proxy has the loop
//
//	for {
//		lease, err := cluster.Acquire(x.Context(), …)         // an endpoint, or why there is none
//		conn, err := lease.HTTP1.Acquire(x.Context())         // err: lease.DialFailed, another endpoint
//		lease.Connected()
//		resp, err := x.Send(conn, policy.PerTryTimeout)       // err: lease.Broken …; Replayable() and the policy decide
//		lease.Response(resp.Status, …)
//		if again(resp) { x.Discard(); continue }              // a status that the policy does not take
//		err = x.Relay(func() {                                // err: the client's connection breaks off by itself
//			lease.Trailers(x.ResponseTrailers())
//			lease.End(true)
//		})
//		return                                                // err: lease.End, unless it has ended
//	}
//
// and where that ends without an answer, x.Respond gives the client ours, with
// Proxy-Status. An endpoint's death within a body never becomes text: Relay has
// failed by then, and the connection is closed with an incomplete body.
//
// # What else there is
//
//   - A connection that begins with the preface of HTTP/2 is given to Config.HTTP2.
//   - A client is told to go by Leave: the next answer says Connection: close, and an idle connection ends a second
//     later, so that what its client had sent already is served. Cut, and the end of the context of NewServer, end what
//     is under way with a reason; Close breaks the connection off.
//   - A request ends early by SetDeadline, or by what CancelFunc gives. Exchange.Context costs nothing unless somebody
//     waits on it; it may be held after Serve, and has ended then.
//   - CONNECT is accepted by Connect, a 101 passed on by Switch; both give the connections, to be copied between.
//   - An endpoint of HTTP/2 answers an HTTP/1.1 client through ReadBody, WriteHead, Write and Finish. The other way round
//     is Call, on the same Conn.
//   - A Pool dials by upstream.Pool.Dial, so that gate, errors and the books that Close empties are the same ones for all
//     connections to an endpoint. Retire, Close and Open mean what they mean there.
//
// # Bounds
//
// A head has http1.Limits and Config.HeaderTimeout; a body that stalls has Config.ReadTimeout or ResponseTimeout; a
// client that does not read has Config.WriteTimeout. A client that has gone is noticed within an eighth of the time that
// was waited already, at least 50 ms and at most 5 s, unless it had sent another request ahead. One that still sends when
// the last answer is out gets the time to read it that package linger gives, and 16 MiB of what it sends are thrown away.
// An idle connection, of a client or in a pool, holds no buffer. A busy one holds two of 16 KiB, and 64 KiB for each long
// body. TLS connections work, without the savings above and without the look at who has gone; what a net.Conn is decides.
package relay
