//go:build !linux

package upstream

import (
	"net"
	"time"
)

func setUserTimeout(*net.TCPConn, time.Duration) {}
