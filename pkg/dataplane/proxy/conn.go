package proxy

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// conn is a client's HTTP/2 connection.
//
// A client that is told to go gets a GOAWAY that names no stream (RFC 9113
// section 6.8), so that what it has under way to us is served; net/http, which
// can only name the last stream that it has seen, sends its own at the end.
type conn struct {
	*net.TCPConn
	life
	// set once; server before the connection is served
	http   *HTTP
	under  net.Conn // TCPConn, with what a listener of ours keeps of it
	server *http.Server

	// head has been read already, and comes before the rest; its reader owns it.
	head []byte

	// goAway wants a GOAWAY written as soon as no frame is half written.
	goAway atomic.Bool

	wmu    sync.Mutex // guards frames, and writing frames of ours between those of net/http
	frames frames
}

// Socket is the connection itself, to look at and not to use.
func (c *conn) Socket() *net.TCPConn { return c.TCPConn }

func newConn(h *HTTP, a arrival) *conn {
	c := &conn{TCPConn: a.tcp, http: h, under: a.Conn, head: a.head}
	c.begins(h.Tracker, a, c)
	return c
}

// ServeHTTP relays one request.
func (c *conn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := newPair(c.http, w, r)
	x := &exchange{}
	x.prepare(c.http, p, &c.life)
	x.head = p.head()
	x.run() //nolint:contextcheck // it is in p
}

// tell implements speaker. When the client has had the time to hear of it,
// net/http names the last stream, and closes when all have ended.
func (c *conn) tell() {
	c.goAway.Store(true)
	c.say()
	c.after(settle, func() {
		// It does not wait, since it may not.
		_ = c.server.Shutdown(ended)
	})
}

// begun implements speaker. It leaves after settle, so that a client with
// nowhere else to go does not connect for each request.
func (c *conn) begun() { c.after(settle, c.leave) }

// state is net/http's hook.
func (c *conn) state(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed {
		c.ended()
	}
}

// Close closes the connection; net/http calls it.
func (c *conn) Close() error {
	c.ended()
	return c.under.Close()
}
