// Package upstream dials endpoints, and has the words for what goes wrong with them.
//
// A Pool has all connections to one endpoint on its books, whatever they carry:
// those of the relays (packages http1/relay and http2), which keep pools of their
// own on top of it, and opaque ones. It asks the Gate before each, classifies the failures of
// dials, and closes what is left when the endpoint goes:
//
//	open ──Retire──▶ retired: no more dials ──drain over, or Close──▶ retired, and nothing left
//	  └────────────────────────────── Close ────────────────────────────▲
//
// An Error says what went wrong with a request: a Reason, which is the same word in metrics, logs, Proxy-Status and
// statuses of gRPC, and what decides whether it may be sent again (Unsent, Unanswered, Reused). error.go and reason.go
// come first, outcomes.go has what each reason means for a client and for a person; then pool.go and dial.go.
//
// All types are safe for concurrent use. A Pool has no goroutine but that of its timer. An Error is not changed once
// others have it: who has another word for it copies it (Late).
package upstream
