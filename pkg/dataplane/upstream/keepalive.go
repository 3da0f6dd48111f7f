package upstream

import (
	"net"
	"time"
)

// The times after which a peer counts as dead: one that has not acknowledged
// what was sent to it, and one that answers no keepalive.
const (
	userTimeout       = 30 * time.Second
	keepAliveIdle     = 30 * time.Second
	keepAliveInterval = 10 * time.Second
	keepAliveCount    = 3
)

// KeepAlive makes the kernel end c with an error when its peer is dead: by keepalive
// and, on Linux, TCP_USER_TIMEOUT. Every connection has it, the clients' and the
// endpoints'. It is best effort: a socket without these options works too.
func KeepAlive(c *net.TCPConn) {
	_ = c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount})
	setUserTimeout(c, userTimeout)
}
