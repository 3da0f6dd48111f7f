// Package h2spec runs h2spec, the conformance suite of HTTP/2, strict cases
// included, against Go's own server, Envoy, the server's side of the relay, and
// the data plane as it is delivered: ours must pass whatever one of the others
// does. Envoy is installed as package interoptest says.
//
// It is a module of its own because nothing else here should depend on h2spec. Run it with
//
//	cd test/h2spec && go test -v ./...
package h2spec
