// Package meshtest runs a whole mesh in one process, for tests: manifests in a
// directory, the real control plane, the real data plane, backends that can die
// and come back, and clients that never retry. All of it talks over loopback
// sockets on free ports, and ends with the test.
package meshtest
