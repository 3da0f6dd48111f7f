// Package interop tests the control plane with clients that others wrote:
// Envoy, and the gRPC clients of Go, Python and Node, at pinned versions.
//
// The tests install what they need below .cache/interop (clients/ says what),
// start each client with the bootstrap that "xds-server bootstrap" writes, and
// end every process that they start. Where Python or Node is missing the tests
// that need it say so and are skipped, but with CI=true they fail.
package interop
