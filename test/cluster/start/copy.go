package main

import (
	"io"
	"net"
)

// copyHalf copies one direction, and passes its end on.
func copyHalf(to, from net.Conn) {
	_, _ = io.Copy(to, from) // either end may go away
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
