package proxy

import (
	"net"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// http1Conn is a client's connection that has not shown to be HTTP/2. One goroutine
// has it from its beginning to its end; what is in it is that one's, but for life.
type http1Conn struct {
	life
	http   *HTTP
	under  net.Conn
	client *relay.Server
	via    relayed
	x      exchange
	memo   memo
}

// takeHTTP1 serves a connection, as HTTP/1.1 until it shows to be HTTP/2, and does not wait for its end.
func (h *HTTP) takeHTTP1(a arrival) {
	c := &http1Conn{http: h, under: a.Conn}
	c.via.http = h
	c.x.memo = &c.memo
	c.init(h.Tracker, a, c)
	headerTime, headerBytes := h.Limits.header()
	bodyIdle, writeIdle := h.Limits.idle()
	c.client = relay.NewServer(c.ctx, relay.Config{
		Handler: c,
		// How many fields there may be is judged where a client hears why.
		Limits:        http1.Limits{Bytes: headerBytes, Fields: 1 << 20},
		HeaderTimeout: headerTime, IdleTimeout: idleTime, ReadTimeout: bodyIdle, WriteTimeout: writeIdle, MaxBody: h.MaxRequestBytes,
		Refused: c.refused, HTTP2: c.handOver, Panicked: c.panicked,
	}, a.Conn, a.head)
	if !h.Tracker.enter(&c.life) {
		_ = a.Close()
		return
	}
	c.limitAge(h.MaxConnectionAge, h.MaxConnectionAgeGrace)
	go c.serve()
}

// idleTime is how long a client's connection may carry nothing.
const idleTime = time.Hour

// serve is the connection's goroutine.
func (c *http1Conn) serve() {
	c.client.Serve()
	c.ended()
}

// handOver has a connection that begins like HTTP/2 served so.
func (c *http1Conn) handOver(nc net.Conn, first []byte) {
	c.ended()
	c.http.takeHTTP2(arrival{Conn: nc, tcp: socketOf(nc), head: first, to: c.to}, c.told())
}

// Serve implements relay.Handler.
func (c *http1Conn) Serve(x *relay.Exchange) {
	c.via.x, c.via.grpcStatus = x, ""
	c.x.prepare(c.http, &c.via, &c.life)
	c.x.head = c.via.head()
	c.x.run()
}

// refused hears of what was no request.
func (c *http1Conn) refused(client net.Addr, status int, e *upstream.Error) {
	c.http.Limits.ended(e.Reason)
	c.http.Metrics.refused(status, e.Reason)
	c.http.Logger.Debug("no request", "client", client, "status", status, "reason", e.Reason, "err", e.Err)
}

// panicked hears of a panic that was in no request, or in the sending of its body.
func (c *http1Conn) panicked(client net.Addr, v any, stack []byte) {
	c.http.panicked(client.String(), v, stack)
}

// tell implements speaker.
func (c *http1Conn) tell() { c.client.Leave() }

// leaveSoon implements speaker: it is now, as the answer that follows says so.
func (c *http1Conn) leaveSoon() { c.leave() }

// Close implements io.Closer.
func (c *http1Conn) Close() error {
	err := c.client.Close()
	c.ended()
	return err
}
