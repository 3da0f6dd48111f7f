//go:build !linux

package limit

import (
	"net"
	"time"
)

func setUserTimeout(*net.TCPConn, time.Duration) {}
