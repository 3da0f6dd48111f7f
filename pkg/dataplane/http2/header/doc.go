// Package header translates header lists between HTTP/2 blocks (RFC 7541) and
// package message. It does no I/O.
//
// Decoder stands on x/net's hpack and judges what it gives by RFC 9113 section
// 8: whatever a list says that a message must not say makes it malformed, and
// the whole block is read all the same, so that the compression state stays
// in step. Encoder is ours: x/net's searches four maps for each field and
// enters everything into its table. Here a field is found by one hash, and it
// enters the table when it comes for the second time, so that values which
// never come again (deadlines, trace ids, dates) push nothing out.
//
// Credentials never enter a table (RFC 7541 section 7.1): connections to
// endpoints are shared by clients that must not learn of each other's, and
// what arrived as never indexed leaves so.
//
// A Decoder and an Encoder belong to one direction of one connection each, and
// are not safe for concurrent use.
package header
