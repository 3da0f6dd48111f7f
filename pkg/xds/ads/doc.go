// Package ads is the core of one xDS stream: the rules of the protocol, for
// state-of-the-world and incremental streams, aggregated or of one type.
//
// It is pure: no goroutine, clock or I/O. The goroutine that owns a Stream
// feeds it and drains it:
//
//	Request    what the client sent
//	Published  the newest view of the store
//	Resend     what somebody else wants this client to get again
//	Tick       time has passed; gives the reason when the stream must end
//	Next       the response to send now, if any
//	Sent       the transport has taken that response
//
// What the client holds is not decided here but in package ack; this package
// decides what a request means and what a response looks like.
//
// At most one response is handed out at a time, and at most one a type waits
// for its answer, so nothing is queued here: whatever changes meanwhile is part
// of a later Next. Section names in comments are those of the xDS protocol
// specification (xds_protocol in Envoy's documentation).
package ads
