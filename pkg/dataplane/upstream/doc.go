// Package upstream dials endpoints, and has the words for what goes wrong with them.
//
// A Pool has all connections to one endpoint on its books, whatever they carry:
// those of the relays (packages http1/relay and http2), which keep pools of their
// own on top of it, and opaque ones. It asks the Gate before each, classifies the failures of
// dials, and closes what is left when the endpoint goes.
//
// All types are safe for concurrent use. A Pool has no goroutine but that of its timer.
package upstream
