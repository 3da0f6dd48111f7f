package proxy

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
)

// accept gives each connection to serve until l is closed; then it gives nil.
func (c Config) accept(ctx context.Context, l net.Listener, serve func(net.Conn)) error {
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

// Serve accepts until l is closed. It gives nil after net.ErrClosed. What was
// accepted goes on; Tracker knows of it.
func (h *HTTP) Serve(ctx context.Context, l net.Listener) error {
	return h.accept(ctx, l, func(nc net.Conn) { h.take(arrival{Conn: nc, tcp: socketOf(nc)}) })
}

// take serves a connection, and does not wait for its end: as HTTP/1.1, until it shows to be HTTP/2.
func (h *HTTP) take(a arrival) { h.takeHTTP1(a) }

// takeHTTP2 serves a connection, and does not wait for its end. Each has an
// http.Server of its own, since net/http can shut down only whole servers, and
// connections must go one by one.
func (h *HTTP) takeHTTP2(a arrival, told bool) {
	c := newConn(h, a)
	c.server = h.server(c)
	if !h.Tracker.enter(&c.life) {
		_ = c.Close()
		return
	}
	c.limitAge(h.MaxConnectionAge, h.MaxConnectionAgeGrace)
	if told {
		c.leave()
	}
	// It returns at once: the listener has only the one connection.
	_ = c.server.Serve(&single{c})
}

func (h *HTTP) server(c *conn) *http.Server {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	_, headerBytes := h.Limits.header()
	return &http.Server{
		Handler: c, DisableGeneralOptionsHandler: true, Protocols: &protocols, ErrorLog: h.stdLog(),
		MaxHeaderBytes: headerBytes, IdleTimeout: idleTime,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: 1000, SendPingTimeout: 30 * time.Second, PingTimeout: 10 * time.Second},
		BaseContext: func(net.Listener) context.Context { return c.ctx },
		ConnState:   c.state,
	}
}

// panicked tells of a defect of ours, which costs one connection or stream.
func (c Config) panicked(client string, v any, stack []byte) {
	c.Metrics.panics.Inc()
	c.Logger.Error("a defect of the proxy ended a request", "client", client, "panic", v, "stack", string(stack))
}

// stdLog carries what net/http's servers have to say, which is about clients and seldom of use.
func (h *HTTP) stdLog() *log.Logger {
	return h.Logger.Named("http").StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})
}

// single is a listener of one connection.
type single struct{ c *conn }

func (s *single) Accept() (net.Conn, error) {
	if c := s.c; c != nil {
		s.c = nil
		return c, nil
	}
	return nil, net.ErrClosed
}

func (s *single) Close() error   { return nil }
func (s *single) Addr() net.Addr { return &net.TCPAddr{} }
