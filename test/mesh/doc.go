// Package mesh tests the whole path in one process over real sockets: manifests
// in, acknowledged endpoints out, and a proxy that leaves a dead endpoint.
package mesh
