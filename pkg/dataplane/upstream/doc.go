// Package upstream owns the connections to endpoints: one Pool for each
// endpoint, and the words for what went wrong on them.
//
// Dialling is separate from sending. Pool.Acquire gives a Conn reserved for
// exactly one request and has sent nothing of it, so a caller whose Acquire
// failed may go to another endpoint whatever the request is. Conn.RoundTrip
// sends once and never retries: net/http's own silent retries live in
// http.Transport's pool, which is not used; each connection is a single
// http.ClientConn. What is known after a failure is in Error.
//
// All types are safe for concurrent use. A Pool's goroutines are those of
// net/http, one set for each connection, which end with the connection, and one
// for a dial that several HTTP/2 requests share, which Close ends and waits for.
package upstream
