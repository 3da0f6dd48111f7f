// Package h2spec runs h2spec, the conformance suite of HTTP/2, against the
// server's side of the relay, strict cases included, and against Go's own
// server: the relay must pass whatever Go's does.
//
// It is a module of its own because nothing else here should depend on h2spec. Run it with
//
//	cd test/h2spec && go test ./...
package h2spec
