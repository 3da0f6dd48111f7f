//go:build !linux

package proxy

import "net"

// dead is not known here: what breaks is taken to be the side that was read.
func dead(*net.TCPConn) bool { return false }
