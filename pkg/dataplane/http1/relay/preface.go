package relay

import (
	"strings"
	"time"
)

// awaitPreface waits until the first bytes tell whether they are the preface of HTTP/2. It gives false when the connection is over.
func (c *Server) awaitPreface() bool {
	var by instant
	for {
		p := c.in.data()
		if len(p) >= len(preface) || len(p) > 0 && !strings.HasPrefix(preface, string(p)) {
			return true
		}
		if len(p) == 0 {
			c.in.give()
			if !c.idle() {
				return false
			}
			continue
		}
		if by == 0 {
			by = fromNow(c.cfg.HeaderTimeout)
		}
		if !c.readMore(by) {
			return false
		}
	}
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

func isPreface(p []byte) bool { return len(p) >= len(preface) && string(p[:len(preface)]) == preface }

// handOver gives the connection away. It gives false where Close was faster.
func (c *Server) handOver() bool {
	c.mu.Lock()
	c.opaque = true
	c.mu.Unlock()
	if c.sock.SetDeadline(time.Time{}) != nil {
		return false
	}
	c.cfg.HTTP2(c.sock.Conn, append([]byte(nil), c.in.data()...))
	return true
}
