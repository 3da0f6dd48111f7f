package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// accept gives each connection to serve until l is closed; then it gives nil.
func (c *Config) accept(ctx context.Context, l net.Listener, serve func(net.Conn)) error {
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			// The listener has waited for file descriptors itself (package limit). What is left
			// passes too, and closing would make it worse.
			c.Logger.Warn("accept failed", "listener", l.Addr(), "err", err)
			if !pause(ctx, 50*time.Millisecond) {
				return fmt.Errorf("accept on %s: %w", l.Addr(), err)
			}
			continue
		}
		serve(nc)
	}
}

// HTTP is the handler of an HTTP listener.
type HTTP struct {
	Config
	// Bound is the cluster of every request, whatever its authority; "" goes by authority.
	Bound string
}

// Serve accepts until l is closed. It gives nil after net.ErrClosed. What was
// accepted goes on; Tracker knows of it.
func (h *HTTP) Serve(ctx context.Context, l net.Listener) error {
	return h.accept(ctx, l, func(nc net.Conn) { h.takeHTTP1(arrival{Conn: nc, tcp: socketOf(nc)}) })
}

// panicked tells of a defect of ours, which costs one connection or stream.
func (c *Config) panicked(client string, v any, stack []byte) {
	c.Metrics.Panicked()
	c.Logger.Error("a defect of the proxy ended a request", "client", client, "panic", v, "stack", string(stack))
}
