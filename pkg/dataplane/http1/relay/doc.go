// Package relay relays HTTP/1.1 from clients to endpoints. It moves messages and
// knows what happened to them; what to do then is a Handler's affair.
//
// # A request's way
//
//	Client.Serve ─ reads a head ─▶ Handler.Serve(x) ─▶ Pool.Acquire      a connection, nothing sent
//	     ▲                              │              x.Send(conn)      head and body go, the answer's head comes
//	     │                              │              x.Discard         this answer is not the last word
//	     │                              ▼              x.Relay           head and body to the client
//	     └──────── answered ─── x.end ◀─┘
//
// All of it runs in the one goroutine of the client's connection. There is a
// second one only while a request's body, which did not come whole with its
// head, is being sent: then the first one waits for the answer, which may come
// before the body has gone. No goroutine belongs to a connection upstream.
//
// In the ordinary case a request costs one wait and one read on the client's
// side, one write to the endpoint, one look whether that connection is still
// good, one read of the answer, and one write of it: head and body in one. The
// look is a read that finds nothing, and takes the place of the one that each
// wait for an answer would begin with (socket.ask). Nothing is allocated.
//
// # What the handler decides with
//
// The errors of Acquire, Send and Relay are *upstream.Error, and say what package
// upstream promises: Unsent only if no peer can have acted on the request,
// Unanswered if no byte of an answer has come, Reused if the connection had
// carried a request before and broke without an answer. After a failed Send the
// request may be sent again if Replayable: what was read of the body, up to 64
// KiB, is kept until Relay. So the loop of package proxy stays as it is:
//
//	for {
//		lease, err := cluster.Acquire(x.Context(), …)         // an endpoint, or why there is none
//		conn, err := lease.Pool.Acquire(x.Context())          // err: lease.DialFailed, another endpoint
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
// and where the loop ends without an answer, x.Respond gives the client ours, with
// Proxy-Status. An endpoint's death within a body never becomes text: Relay has
// failed by then, and the connection is closed with an incomplete body.
//
// # How package proxy uses it
//
//   - Pool is made beside upstream.Pool for endpoints of HTTP/1.1, with
//     upstream.Pool.Dial as its Dial: so the gate, the classification of dial errors,
//     and the books that Close empties are the same ones. Retire, Close, CloseIdle and
//     Open mean what they mean there.
//   - Each connection goes to NewClient; one that begins with the preface of HTTP/2 comes
//     back by Config.HTTP2.
//   - Tracker keeps Clients. Drain and the greatest age call Leave: the next answer
//     says Connection: close, and an idle connection ends a second later, so that
//     what its client had sent already is served. The end of the grace and Expire call Cut with
//     the reason, Abort calls Close. A Client needs no other state there.
//   - Deadlines (grpc-timeout, the service's timeout) are x.SetDeadline, a cluster that
//     closes what is established gets x.CancelFunc as endpoints.Request.Cancel.
//     x.Context is a context that costs nothing unless somebody waits on it; to hold
//     it after Serve is allowed, it has ended then. While somebody waits on it, a
//     goroutine looks whether the client is still there.
//   - MaxRequestBytes is Config.MaxBody, MaxActive is the handler's: x.Respond.
//   - CONNECT is Connect after a dial, 101 is Switch; both give the connections, and
//     splice copies between them.
//   - An HTTP/2 endpoint answers an HTTP/1.1 client through ReadBody, WriteHead, Write
//     and Finish. The other way round is Call, on the same Conn.
//
// # Bounds
//
// A head has http1.Limits and Config.HeaderTimeout; a body that stalls has
// Config.ReadTimeout or ResponseTimeout; a client that does not read has Config.WriteTimeout. A
// client that has gone is noticed within an eighth of the time that was waited
// already, at least 50 ms and at most 5 s, unless it had sent another request
// ahead. One that still sends when the last answer is out gets the time to read it that package
// linger gives, and 16 MiB of what it sends are thrown away. An idle connection, of a client or in a pool, holds no buffer. A busy one holds two of 16 KiB, and
// 64 KiB for each long body. TLS connections work, without the savings above and
// without the look at who has gone; what a net.Conn is decides.
package relay
