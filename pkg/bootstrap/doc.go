// Package bootstrap is the command "xds-server bootstrap": it writes the file
// with which an xDS client of another project, Envoy or a gRPC client, becomes
// a node of this control plane.
//
// The file says what those clients get wrong by themselves: that a connection
// whose peer is gone must be noticed (HTTP/2 keepalive), that a client must
// not hammer a server that is away (back-off), and who it is (the node's id,
// locality, and the metadata that shapes its view).
//
// Everything here runs on the caller's goroutine and is pure, but for Main,
// which writes.
package bootstrap
