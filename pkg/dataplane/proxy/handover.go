package proxy

import (
	"context"
	"net"
	"sync"
)

// Handover is a net.Listener that gives out the connections which something
// else has accepted and looked at: those of HTTP.
type Handover struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewHandover makes a listener that says it is at addr.
func NewHandover(addr net.Addr) *Handover {
	return &Handover{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept waits for the next connection; net.ErrClosed after Close.
func (h *Handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: h.addr, Err: net.ErrClosed}
	}
}

// Close ends Accept.
func (h *Handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr is what NewHandover was given.
func (h *Handover) Addr() net.Addr { return h.addr }

// give hands c over, or closes it when nobody takes it any more.
func (h *Handover) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		_ = c.Close()
	}
}

type routeKey struct{}

// ConnContext is for http.Server: it notes where a captured connection was going.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if r, ok := c.(*replayed); ok && r.to != nil {
		return context.WithValue(ctx, routeKey{}, r.to)
	}
	return ctx
}

func routeOf(ctx context.Context) *route {
	r, _ := ctx.Value(routeKey{}).(*route)
	return r
}
