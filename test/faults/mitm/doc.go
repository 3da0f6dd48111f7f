// Package mitm is a man in the middle for tests. It relays plaintext HTTP/2
// connections with prior knowledge (as gRPC speaks them) frame by frame between
// xDS clients and a control plane, and breaks them in exactly stated ways.
//
// # What is relayed, what is made anew
//
// PING, SETTINGS and their acknowledgements, GOAWAY, PRIORITY, RST_STREAM and
// frames of unknown type go from end to end, so that keepalive tests the whole
// path, and each side knows the other side's limits. (One exception: a peer that is
// behind with reading what a fault on messages has put together or doubled
// has its PINGs answered by the proxy; see receivePing.) Header blocks are decoded
// and encoded anew (HPACK state belongs to one connection); CONTINUATION frames
// are joined and made anew; a priority inside HEADERS, and padding, are left
// out. A server push, a header list above 1 MiB, and what is not HTTP/2 at all
// end the pair of connections. The HEADERS that open a stream are never
// withheld, because stream ids must rise (RFC 9113, section 5.1.1).
//
// # Flow control
//
// The proxy grants no window of its own. For each stream and for the connection,
// and in each direction, it knows three numbers:
//
//	receiver  what the receiver still takes
//	sender    what the sender still may send
//	buffered  what the sender has sent and the receiver has not been sent
//
// There is one rule: whenever sender + buffered < receiver, the sender is
// given the difference in a WINDOW_UPDATE. So
//
//   - undisturbed, each WINDOW_UPDATE passes with its number unchanged, and a
//     receiver that does not read blocks the sender;
//   - the bytes of a swallowed message and padding are given back at once;
//   - the bytes of a duplicate are kept back from the updates that follow;
//   - bytes that a fault withholds are not counted for the connection, only for
//     their stream: a stalled stream does not stall the others.
//
// One thing is granted in advance: a message that must be whole before a fault
// can judge it gets the rest of its length as window of its stream. Hence memory is
// bounded for each stream by its receiver's window and one message of 16 MiB.
// A longer one passes unexamined. Reading stops while more than 1 MiB waits to
// be written to a socket.
//
// Messages are put together only while a fault on messages is in force when
// they begin; a message whose beginning has passed passes whole. Otherwise
// bytes pass as they come, and messages are only copied.
//
// # Stages of one direction of one stream
//
//	DATA ─▶ assembler ─▶ Swallow ─▶ Duplicate ─▶ Delay ─┐
//	HEADERS, RST_STREAM ────────────────────────────────┴▶ queue ─▶ socket
//	                           (DelayOthers, StallStreams, flow control)
//
// # Concurrency
//
// Each pair of connections has one owner goroutine that holds all its state;
// two readers hand it one frame at a time, and two writers take bytes from it.
// A change of faults is a message to each owner, and the method returns when
// all have adopted it. Functions given to the proxy (match, Observe) run on the
// owners' goroutines, several at once; they must be quick and must not call the
// proxy (undo functions neither).
//
// # What it cannot do
//
// The kernel acknowledges at TCP level whatever a fault does, so TCP_USER_TIMEOUT
// and retransmission are not tested by HalfOpen and Freeze. Compressed
// messages are seen, but not decoded.
package mitm
