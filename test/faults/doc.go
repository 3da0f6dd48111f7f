// Package faults is the fault lab: it breaks the path from the source to the
// proxies in every way we know, under traffic, and measures how long routing
// stays wrong.
//
// A case (cases_test.go) says in a few lines what is broken, what changes
// meanwhile, and from when time counts. Each case has a world of its own: an
// xds-server process, backends that say who they are, and clients of up to four
// kinds (our data plane as a process, Envoy in both variants of xDS, grpc-go),
// each behind a man in the middle (package mitm). Every client carries traffic
// that is never retried by its sender.
//
// What is right is judged by who answered. An answer from an instance that is
// not, or no longer, an endpoint of the requested service is wrong. A client has
// recovered when its last wrong or failed request is over and every endpoint of
// now has answered through it. Meanwhile the audit is polled: to call a node
// fresh while its traffic is wrong, for longer than probe-interval and
// ack-timeout, is a violation.
//
// The same cases run at two scales. "go test" runs them short, with quick
// intervals, mostly against our data plane. "make faults" runs each against
// every client with the default intervals, and writes docs/faults.md.
package faults
