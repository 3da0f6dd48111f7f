package xds

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// returnTime is how long a client that was reset for its silence has to come
// back with a new stream before its connection is closed too.
const returnTime = 3 * time.Second

// connection is one client's transport. gRPC gives a stream no handle of it, so
// Credentials lay one where gRPC does keep something for each connection.
type connection struct {
	// set once
	raw net.Conn

	mu sync.Mutex // guards what follows; a leaf
	// sessions are the streams on it that have named their node.
	sessions map[*session]struct{}
	// opened counts all there ever were.
	opened int
	closed bool
}

// Credentials wraps transport credentials so that a Server can close the
// connection of a client that does not come back. ServerOptions has those of a
// plaintext server; one with TLS adds grpc.Creds(Credentials(its own)) after them.
func Credentials(inner credentials.TransportCredentials) credentials.TransportCredentials {
	return tracking{inner}
}

type tracking struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (t tracking) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	return conn, authInfo{info, &connection{raw: raw, sessions: make(map[*session]struct{})}}, nil
}

// Clone implements credentials.TransportCredentials.
func (t tracking) Clone() credentials.TransportCredentials {
	return tracking{t.TransportCredentials.Clone()}
}

// authInfo is what the handshake gave, and the connection.
type authInfo struct {
	credentials.AuthInfo
	connection *connection
}

// connectionOf gives a stream's connection. On a server without Credentials it is
// one that nothing is known of, and that cannot be closed.
func connectionOf(ctx context.Context) *connection {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(authInfo); ok {
			return info.connection
		}
	}
	return &connection{sessions: make(map[*session]struct{})}
}

func (c *connection) add(sn *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[sn] = struct{}{}
	c.opened++
}

func (c *connection) remove(sn *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, sn)
}

// streams gives how many streams have named their node on it so far.
func (c *connection) streams() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened
}

// serves tells whether a node other than the given one has answered on it
// since a time: then it passes messages, and closing it would cost that node's stream.
func (c *connection) serves(others Node, since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for sn := range c.sessions {
		if sn.node.ID != others.ID && sn.confirmed.Load() > since.UnixNano() {
			return true
		}
	}
	return false
}

// close closes it, and tells whether it did: once at most, and never without Credentials.
func (c *connection) close() bool {
	c.mu.Lock()
	was := c.closed || c.raw == nil
	c.closed = true
	c.mu.Unlock()
	return !was && c.raw.Close() == nil
}

// abandon closes the connection of a client that was reset for its silence, unless
// a new stream follows within returnTime: whatever swallowed the client's answers
// may swallow the end of the stream, too, and then only the end of the connection tells it.
// A connection that other nodes answer on is left alone. node has no ID
// where the client never named one. Nobody waits for the timer: its function
// does not block, and does nothing once the server drains.
func (s *Server) abandon(c *connection, node Node, address string) {
	opened, returned := c.streams(), s.register.returns(node.ID)
	time.AfterFunc(returnTime, func() {
		select {
		case <-s.draining:
			return // all connections end
		default:
		}
		now := time.Now()
		switch {
		case c.streams() > opened && node.ID == "", s.register.returns(node.ID) > returned:
			return
		case c.serves(node, now.Add(-s.silence())), !c.close():
			return
		}
		s.metrics.connections.Inc()
		s.register.note(node.ID, now, "connection closed: no new stream within "+returnTime.String())
		s.cfg.Logger.Warn("connection closed", "node", node.ID, "address", address, "reason", "no new stream after a reset")
	})
}

// silence is how long a client may answer nothing.
func (s *Server) silence() time.Duration {
	return s.cfg.Policy.ProbeInterval + s.cfg.Policy.AckTimeout
}
