// Package proxy is the traffic side of the data plane: HTTP by authority, HTTP
// bound to one cluster, CONNECT, and opaque TCP.
//
// What is decided here:
//
//   - Host passes unchanged, and so do X-Forwarded-For, Forwarded and Via: in
//     the outbound direction the proxy stands in for the client and is no hop
//     that a backend should see.
//
//   - A request goes to another endpoint while nothing of it has been
//     processed, or when it is idempotent (RFC 9110 section 9.2.2), unanswered,
//     and its body can be sent again (none, or up to 64 KiB of it read so far).
//
//   - An upstream that dies after its headers ends the client's stream
//     abnormally: no text of ours ever follows a body.
//
//   - The upgrade to h2c is not offered (RFC 9113 section 3.1 retired it): the
//     header is dropped and the request served as HTTP/1.1. HTTP/2 by prior
//     knowledge is served on the same port.
//
//   - An absolute-form target whose authority is not that of Host is 400, and so is
//     all else that two readers could take for two things (package http1).
//
// What becomes of a request is decided in one place, exchange and its attempts, which know no
// protocol; carriers move it, and wait, or http2's relay does, which does not:
//
//	                 client HTTP/1.1             client HTTP/2
//	                 http1Conn ── relay.Server   http2Conn ── http2.Server
//	endpoint HTTP/1.1     relayed                   bridge
//	endpoint HTTP/2       bridge                    stream
//	tunnel                relayed                   bridge
//
// # Where to begin
//
// serve.go accepts connections, http1conn.go and http2conn.go serve them, life.go is what they have in common. Then
// exchange.go and exchangeend.go are the way of a request, attempts.go, verdict.go and retrypolicy.go that over endpoints,
// and carrier.go what moves it: relayed.go, then stream.go and streamend.go, then bridge.go with client1.go, client2.go and
// bridgesend.go. Opaque connections are tcp.go, captured.go and sniff.go, over link.go and relayconns.go. tracker.go is the
// drain of all of them.
//
// # Ownership
//
// A connection is an http1Conn until it shows to be HTTP/2. An HTTP/1.1
// connection has one goroutine, which runs its requests one after another. One of HTTP/2
// has one that reads, and no request has another as long as it goes on as frames and
// nothing must be waited for; a bridge has one, or two with a body. A TCP connection
// has one of its own and one more for its other direction. Tracker knows all of
// them, and its owner waits for them. HTTP, TCP, Captured and Config are set up once, and then read by all.
package proxy
