// Package interoptest starts, for tests, the xDS clients that others wrote, and
// other programs: Envoy, grpc-go, our own data plane. It installs what they need:
// clients of other languages at pinned versions (clients/ says what) below
// .cache/interop, and programs of the operating system (curl, h2load, …) with
// apt-get, where we are root.
//
// Where one is missing all the same the tests that need it say so and are skipped,
// but with CI=true they fail. Every process ends with the test that started it.
//
// Concurrency: what a function gives belongs to the test's goroutine unless its
// comment says otherwise.
package interoptest
