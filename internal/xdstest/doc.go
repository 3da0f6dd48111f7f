// Package xdstest speaks raw xDS to a server under test, over real gRPC: state
// of the world and delta, with every nonce, name and refusal in the hands of
// the test. It serves the tests of pkg/xds and of whatever stands above it.
//
//   - [Serve], [ServeMany] and [ServeTCP] run services behind a bufconn or a loopback
//     listener and give a connection to them.
//   - [Open] opens an ADS stream as a node; [Stream] sends and expects.
//   - [RunTranscript] runs a text file of commands, and compares what each of
//     them made the server send. The commands stand there.
//
// With a bufconn all of it runs inside a [testing/synctest] bubble, where
// silence can be proven: [Stream.Silent] waits until every goroutine of the
// bubble blocks, and then looks. Outside of a bubble silence is shown by
// order instead: cause a response that is known, and expect it to be the next.
//
// A Stream is used from one goroutine, the test's.
package xdstest
