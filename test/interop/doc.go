// Package interop tests the control plane with clients that others wrote:
// Envoy, and the gRPC clients of Go, Python and Node, at pinned versions, which
// internal/interoptest installs and starts.
package interop
