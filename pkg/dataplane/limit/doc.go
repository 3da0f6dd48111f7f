// Package limit bounds what clients can make the proxy hold: connections, file
// descriptors and memory.
//
// Listener refuses connections over a number that several listeners share, and
// waits out a lack of file descriptors while what is established goes on.
// Memory tells when the process holds so much that new work must be shed. Both
// are safe for concurrent use; Memory has one goroutine, which Run is.
package limit
