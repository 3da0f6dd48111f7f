package bubble

import (
	"net"
	"sync"
)

// gate is what a connection waits at before each read and each write.
type gate struct {
	mu     sync.Mutex // guards shut
	shut   bool
	opened *sync.Cond
}

func newGate() *gate {
	g := &gate{}
	g.opened = sync.NewCond(&g.mu)
	return g
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	if !shut {
		g.opened.Broadcast()
	}
}

func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.shut {
		g.opened.Wait()
	}
}

// gated is a connection behind a gate. What was read before the gate shut is
// held back, too.
type gated struct {
	net.Conn
	gate *gate
}

// Read implements net.Conn.
func (c *gated) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.gate.pass()
	return n, err
}

// Write implements net.Conn.
func (c *gated) Write(p []byte) (int, error) {
	c.gate.pass()
	return c.Conn.Write(p)
}
