// Package interoptest starts, for tests, the xDS clients that others wrote, and
// other programs: Envoy, grpc-go, and what installs them and the clients of
// other languages at pinned versions (clients/ says what) below .cache/interop.
//
// Where Python or Node is missing the tests that need it say so and are skipped,
// but with CI=true they fail. Every process ends with the test that started it.
//
// Concurrency: what a function gives belongs to the test's goroutine unless its
// comment says otherwise.
package interoptest
