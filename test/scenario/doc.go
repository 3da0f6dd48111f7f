// Package scenario holds the rules of the xDS protocol as transcripts: what a
// client sends, and what the server does, over real gRPC in bubble time. The
// files in testdata are documentation that is executed; each cites the section
// of the xDS specification (xds_protocol in Envoy's documentation) that its
// rules come from. internal/xdstest says how to read them.
package scenario
