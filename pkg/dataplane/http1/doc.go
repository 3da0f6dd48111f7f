// Package http1 reads and writes the heads and the chunked bodies of HTTP/1.1
// (RFC 9112). It does no I/O: who owns a connection gives it the bytes that came.
//
// It is strict, because two readers that see different messages in the same
// bytes are how requests are smuggled (RFC 9112 section 11.2). Whatever can be
// read in more than one way is an *Error, and the connection that it came on
// must be closed. net/http is the oracle: a fuzz test shows that nothing is
// accepted here that net/http refuses, and that what is accepted is framed
// alike. Refused here, though net/http takes it:
//   - bare LF, obs-fold, white space around names, leading empty lines;
//   - Content-Length beside Transfer-Encoding, and a second Content-Length, even an equal one;
//   - Transfer-Encoding with HTTP/1.0, and any coding but one "chunked";
//   - an absolute-form target (RFC 9112 section 3.2.2) whose authority is not that of Host;
//   - "*" with another method than OPTIONS, and a CONNECT to anything but host and port;
//   - white space around chunk sizes, and control bytes in chunk extensions.
//
// # Where to begin
//
// whole.go finds the end of a head, head.go reads its field lines, which request.go and response.go make heads of;
// write.go is the way back. chunked.go takes chunked bodies apart. Whoever uses
// them has a connection: package http1/relay.
//
// # Heads
//
// Request and Response embed what package message defines. Fields leaves out
// what belongs to one connection (RFC 9110 section 7.6.1: Connection and what
// it names, Keep-Alive, Proxy-Connection, Transfer-Encoding, Upgrade, TE, and
// the fields between a client and its proxy), and Host, which is Authority.
// Content-Length stays in Fields, as in HTTP/2, for it says something even
// where no body is (HEAD, 304); the writers take the length of a body from
// Length alone.
//
// Append writes a head. As long as Changed is false it passes on the bytes of
// the fields as they came, without those that were left out; who changes
// anything in Request or Response sets Changed, and then the head is written from the values.
//
// # Ownership
//
// All strings of a parsed head lie in the buffer that was parsed or in memory
// of the Request or Response itself. They are valid until that buffer is
// overwritten or Parse is called again, whichever is first. No type is safe for
// concurrent use: each belongs to whoever owns the connection.
package http1
