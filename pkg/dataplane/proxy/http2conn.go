package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http2"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// http2Conn is a client's HTTP/2 connection. One goroutine reads it from its beginning to its end.
type http2Conn struct {
	life
	http   *HTTP
	under  net.Conn
	server *http2.Server
	memo   memo
	// waits are the goroutines of streams.
	waits sync.WaitGroup

	// free are streams to use again. The server's lock guards them, as it does all calls of Request and of the streams.
	free []*stream
}

// takeHTTP2 serves a connection, and does not wait for its end. told: its client has been told to go.
func (h *HTTP) takeHTTP2(a arrival, told bool) {
	c := &http2Conn{http: h, under: a.Conn}
	c.init(h.Tracker, a, c)
	_, headerBytes := h.Limits.header()
	bodyIdle, writeIdle := h.Limits.idle()
	c.server = http2.NewServer(a.Conn, a.head, c, http2.Config{
		MaxHeaderBytes: headerBytes,
		// How many fields there may be is judged where a client hears why.
		MaxHeaderFields: 1 << 20,
		MaxRequestBytes: h.MaxRequestBytes, IdleTimeout: idleTime, BodyTimeout: bodyIdle, StallTimeout: writeIdle,
		Abused:   h.Metrics.abused,
		Panicked: func(v any, stack []byte) { h.panicked(c.remote, v, stack) },
	})
	if !h.Tracker.enter(&c.life) {
		_ = a.Close()
		return
	}
	c.limitAge(h.MaxConnectionAge, h.MaxConnectionAgeGrace)
	if told {
		c.leave()
	}
	go c.serve()
}

// serve is the connection's goroutine, which reads.
func (c *http2Conn) serve() {
	unhook := context.AfterFunc(c.ctx, func() {
		if e, ok := errors.AsType[*upstream.Error](context.Cause(c.ctx)); ok {
			c.server.FailEach(func(x http2.Decider) *upstream.Error { return x.(*stream).cutBy(e) })
		}
	})
	// Not of the connection's context, whose end answers what is on it: Close cuts.
	err := c.server.Run(context.Background())
	unhook()
	c.cut(nil)
	c.waits.Wait()
	c.ended()
	if err != nil {
		c.http.Logger.Debug("connection ended", "client", c.remote, "err", err)
	}
}

// cutBy gives the error for a request whose connection is cut; nil where a goroutine sees to it.
func (s *stream) cutBy(e *upstream.Error) *upstream.Error {
	if s.bridged {
		return nil
	}
	next := *e
	if !s.away && s.lease != nil {
		next.NextHop = s.lease.Key.Address
	}
	return &next
}

// Request implements http2.Handler.
func (c *http2Conn) Request(k http2.Ticket, m *message.Request) (http2.Decider, http2.Decision) {
	s := c.take()
	s.ticket, s.request = k, m
	s.prepare(c.http, nil, &c.life)
	s.head = headOf(m)
	return s, s.start()
}

// take gives a stream for a request.
func (c *http2Conn) take() *stream {
	if n := len(c.free); n > 0 {
		s := c.free[n-1]
		c.free = c.free[:n-1]
		return s
	}
	s := &stream{of: c}
	s.memo = &c.memo
	return s
}

// put takes a stream that has ended for another request.
func (c *http2Conn) put(s *stream) {
	if len(c.free) >= freeStreams {
		return
	}
	s.request, s.lease, s.asked, s.since, s.trailers = nil, nil, false, time.Time{}, nil
	s.deadline, s.tryBy, s.grpcStatus = time.Time{}, time.Time{}, ""
	s.stop, s.how = nil, http2.Outcome{}
	c.free = append(c.free, s)
}

// freeStreams is how many a connection keeps.
const freeStreams = 64

// tell implements speaker. It may be called with the server's lock held.
func (c *http2Conn) tell() { c.after(0, c.server.GoAway) }

// leaveSoon implements speaker. It leaves after a while, so that a client with
// nowhere else to go does not connect for each request.
func (c *http2Conn) leaveSoon() { c.after(newcomerTime, c.leave) }

// newcomerTime is how long a connection that came during a drain serves requests before its client is told to go.
const newcomerTime = time.Second

// Close implements io.Closer.
func (c *http2Conn) Close() error {
	c.server.Cut(net.ErrClosed)
	c.ended()
	return nil
}
