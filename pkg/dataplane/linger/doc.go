// Package linger tells for how long a connection is still to be read that has been written to for the last time. One
// that is closed while the peer still sends is reset, and with the reset the peer may lose what it has not read yet
// (RFC 9112 section 9.6). The relays call it; a Watch belongs to one goroutine.
//
//	          the peer's host has all           nothing for ToClose, or the peer's end
//	unacked ─────────────────────────▶ acked ───────────────────────────────────────▶ closed
//	   │ nothing taken for Silence       │                                              ▲
//	   └─────────────────────────────────┴───────────── 30 s in all ────────────────────┘
//
// nginx lingers so too (lingering_timeout 5 s, lingering_time 30 s), but by what the client sends alone; Envoy waits 1 s
// after the last byte was written (delayed_close_timeout), Go 1 s on HTTP/2 and 500 ms on HTTP/1.1, however slow the client is.
package linger
