// Package conformance runs clients and servers that others wrote through the
// dataplane program, as a process of its own: curl, Go's, Node's and Python's
// HTTP/1.1 and HTTP/2, h2load, and every case of grpc-go's interop client that
// needs no cloud. So it judges whichever path serves there.
package conformance
