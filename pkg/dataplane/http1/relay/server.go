package relay

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Handler answers requests.
type Handler interface {
	// Serve answers one request, in the goroutine of its connection. It calls one of Relay, Respond, Switch, Connect
	// and WriteHead; if it returns without, or with what it began unfinished, the connection is closed. The
	// exchange and all that came from it must not be used after that.
	Serve(x *Exchange)
}

// Config is what clients' connections have in common.
type Config struct {
	Handler Handler
	// Limits bound the heads of requests.
	Limits http1.Limits
	// HeaderTimeout bounds the time from the first byte of a head to its last, and the wait for the first byte of a
	// connection; 0 is 30 s.
	HeaderTimeout time.Duration
	// IdleTimeout closes a connection on which no request has begun for so long; 0 is an hour.
	IdleTimeout time.Duration
	// ReadTimeout is how long a client may let its request's body wait, ResponseTimeout an endpoint that of its
	// response; 0 is for ever. The reasons are BodyTimeout and ResetMidBody.
	ReadTimeout, ResponseTimeout time.Duration
	// WriteTimeout is how long a client may take to make room for what is written to it, with the reason
	// SlowReader; 0 is for ever.
	WriteTimeout time.Duration
	// MaxBody bounds the body of a request in bytes; 0 for no limit.
	MaxBody int64
	// Refused hears of each message that could not be accepted, and the status that its client got; it may be nil.
	// The reason is Malformed, HeaderLimit or HeaderTimeout.
	Refused func(client net.Addr, status int, err *upstream.Error)
	// Panicked hears of each panic in this package or the Handler that ended a connection instead of the process, but for
	// http.ErrAbortHandler, which means just that; with nil panics go their way. It may be called from any goroutine.
	Panicked func(client net.Addr, value any, stack []byte)
	// HTTP2 is given a connection that begins with the preface of HTTP/2 (RFC 9113 section 3.4), and what was read of
	// it; the Server is over then and leaves it alone. With nil that is no request.
	HTTP2 func(nc net.Conn, first []byte)
}

// noticeTime is for how long nothing must have come on a connection that is
// leaving: what its client sent before it knew is served.
const noticeTime = time.Second

// Server is our side, the server's, of a client's connection
//
//	idle ──first byte──▶ head ──whole──▶ Handler.Serve ──answered──▶ idle
//	  │                   │                    └── last answer, unfinished, cut ──▶ lingers where that helps, closed
//	  │                   └──malformed, late──▶ refused, lingers, closed
//	  └──idle timeout, or leaving for noticeTime──▶ closed
//
// Serve owns it; Leave, Cut and Close may be called from anywhere.
type Server struct {
	// set once
	cfg  Config
	sock *socket
	// ctx is the connection's own, for the contexts of its requests, and over ends it; parent is what it derives from.
	ctx, parent context.Context //nolint:containedctx // as it says
	over        context.CancelCauseFunc

	// atomic
	leaving atomic.Bool
	// cutBy is why the connection is to end with what it carries; nil while it is not.
	cutBy atomic.Pointer[error]

	mu sync.Mutex // guards opaque, and waking for Leave
	// opaque: the connection carries no HTTP/1.1 any more.
	opaque bool

	// owned by Serve
	// in is what came and was not used; out is where heads are made, kept while requests follow each other.
	in  window
	out window
	x   Exchange
}

// NewServer takes a client's connection over. The end of ctx cuts it. first is what has been read from it already.
func NewServer(ctx context.Context, cfg Config, nc net.Conn, first []byte) *Server {
	if cfg.HeaderTimeout <= 0 {
		cfg.HeaderTimeout = 30 * time.Second
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = time.Hour
	}
	if cfg.Limits.Bytes <= 0 {
		cfg.Limits.Bytes = largeBuffer
	}
	c := &Server{cfg: cfg, sock: newSocket(nc), parent: ctx}
	c.ctx, c.over = context.WithCancelCause(ctx)
	if len(first) > 0 {
		if c.in.ensure(); len(first) > smallBuffer {
			c.in.enlarge(len(first))
		}
		c.in.w += copy(c.in.space(), first)
	}
	c.x.c = c
	c.x.body.x = &c.x
	return c
}

// Leave tells the client to go: the next response says Connection: close, and an idle connection ends soon.
func (c *Server) Leave() {
	if !c.leaving.CompareAndSwap(false, true) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.opaque {
		c.sock.wakeRead()
	}
}

// Cut ends the connection and what it carries: a request without an answer may get one, for cause; everything else breaks off.
func (c *Server) Cut(cause error) {
	if c.cutBy.CompareAndSwap(nil, &cause) {
		c.leaving.Store(true)
		c.over(cause)
		c.x.interrupt()
	}
}

// Close breaks the connection off.
func (c *Server) Close() error { return c.sock.Close() }

// Serve serves the connection until it ends, and closes it.
func (c *Server) Serve() {
	handedOver := false
	defer func() {
		if c.cfg.Panicked != nil {
			if v := recover(); v != nil {
				c.recovered(v)
			}
		}
		if !handedOver {
			_ = c.sock.Close()
		}
		c.over(nil)
		c.in.give()
		c.out.give()
	}()
	stop := context.AfterFunc(c.parent, func() { c.Cut(context.Cause(c.parent)) })
	defer stop()
	if c.cfg.HTTP2 != nil {
		if !c.awaitPreface() {
			return
		}
		if isPreface(c.in.data()) {
			// A cut that is under way would break into what the other one does.
			if handedOver = stop() && c.handOver(); handedOver {
				return
			}
		}
	}
	for c.next() {
		c.x.begin()
		c.cfg.Handler.Serve(&c.x)
		if !c.x.end() {
			return
		}
		c.out.give()
	}
}

// recovered ends what the connection carries after a panic.
func (c *Server) recovered(v any) {
	// A second one has nothing to add.
	defer func() { _ = recover() }()
	if err, _ := v.(error); !errors.Is(err, http.ErrAbortHandler) {
		c.cfg.Panicked(c.sock.RemoteAddr(), v, debug.Stack())
	}
	if c.x.ctx != nil {
		c.x.end()
	}
}

// next waits for a request's head. It gives false when the connection is over.
func (c *Server) next() bool {
	var by instant
	for had := 0; ; {
		p := c.in.data()
		if len(p) == 0 {
			c.in.give()
			c.x.req.Rest()
			if !c.idle() {
				return false
			}
			continue
		}
		if !http1.Unfinished(p, had, c.cfg.Limits) {
			n, err := c.x.req.Parse(p, c.cfg.Limits)
			if err != nil {
				c.refuse(err)
				return false
			}
			if n > 0 {
				c.in.r += n
				return true
			}
		}
		had = len(p)
		if by == 0 {
			by = fromNow(c.cfg.HeaderTimeout)
		}
		if !c.readMore(by) {
			return false
		}
	}
}

// idle waits for the first byte of a head.
func (c *Server) idle() bool {
	limit, first := c.cfg.IdleTimeout, c.x.seq == 0
	if first {
		// Who connects has something to say.
		limit = min(limit, c.cfg.HeaderTimeout)
	}
	by := fromNow(limit)
	for {
		if c.leaving.Load() {
			by = earliest(by, fromNow(noticeTime))
		}
		err := c.sock.fill(&c.in, by)
		switch {
		case err == nil:
			return true
		case first && errors.Is(err, os.ErrDeadlineExceeded) && !c.leaving.Load():
			_ = c.refused(errLateHead)
			return false
		case !errors.Is(err, errWoken) || c.cutBy.Load() != nil:
			return false
		}
	}
}

// readMore reads on in a head that has begun.
func (c *Server) readMore(by instant) bool {
	// The limit of a head is reached before this could go on for ever.
	c.in.makeRoom(c.cfg.Limits.Bytes)
	n, err := c.sock.read(c.in.space(), by)
	c.in.w += n
	switch {
	case err == nil:
		return true
	case errors.Is(err, errWoken):
		return c.cutBy.Load() == nil
	case by != 0 && now() >= by:
		c.refuse(errLateHead)
	}
	return false
}
