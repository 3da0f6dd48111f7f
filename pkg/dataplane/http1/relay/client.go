package relay

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
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
	// HeaderTimeout bounds the time from the first byte of a head to its last; 0 is 30 s.
	HeaderTimeout time.Duration
	// IdleTimeout closes a connection on which no request has begun for so long; 0 is an hour.
	IdleTimeout time.Duration
	// ReadTimeout is how long a client may let its request's body wait, and an endpoint that of its response; 0 is for ever.
	ReadTimeout time.Duration
	// WriteTimeout is how long a client or an endpoint may take to make room for what is written to it; 0 is for ever.
	WriteTimeout time.Duration
	// MaxBody bounds the body of a request in bytes; 0 for no limit.
	MaxBody int64
	// Refused hears of each message that could not be accepted; it may be nil.
	Refused func(client net.Addr, err *http1.Error)
}

// settle is for how long nothing must have come on a connection that is
// leaving: what its client sent before it knew is served.
const settle = time.Second

// Client is a client's connection
//
//	idle ──first byte──▶ head ──whole──▶ Handler.Serve ──answered──▶ idle
//	  │                   └──malformed, late──▶ refused, closed
//	  └──idle timeout, or leaving for settle──▶ closed
//
// Serve owns it; Leave, Cut and Close may be called from anywhere.
type Client struct {
	cfg  Config
	sock *socket
	ctx  context.Context //nolint:containedctx // the connection's own, for the contexts of its requests
	over context.CancelCauseFunc

	leaving atomic.Bool
	// cutBy is why the connection is to end with what it carries; nil while it is not.
	cutBy atomic.Pointer[error]

	mu sync.Mutex // guards opaque, and waking for Leave
	// opaque: the connection carries no HTTP any more.
	opaque bool

	// in is what came and was not used; out is where heads are made, kept while requests follow each other.
	in  window
	out window
	x   Exchange
}

// NewClient makes a client of a connection. The end of ctx cuts it. first is what has been read from it already.
func NewClient(ctx context.Context, cfg Config, nc net.Conn, first []byte) *Client {
	if cfg.HeaderTimeout <= 0 {
		cfg.HeaderTimeout = 30 * time.Second
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = time.Hour
	}
	if cfg.Limits.Bytes <= 0 {
		cfg.Limits.Bytes = largeBuffer
	}
	c := &Client{cfg: cfg, sock: newSocket(nc)}
	c.ctx, c.over = context.WithCancelCause(ctx)
	if len(first) > 0 {
		if c.in.take(); len(first) > smallBuffer {
			c.in.enlarge(len(first))
		}
		c.in.w += copy(c.in.space(), first)
	}
	c.x.c = c
	c.x.body.x = &c.x
	return c
}

// Leave tells the client to go: the next response says Connection: close, and an idle connection ends soon.
func (c *Client) Leave() {
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
func (c *Client) Cut(cause error) {
	if c.cutBy.CompareAndSwap(nil, &cause) {
		c.leaving.Store(true)
		c.over(cause)
		c.x.interrupt()
	}
}

// Close breaks the connection off.
func (c *Client) Close() error { return c.sock.Close() }

// Serve serves the connection until it ends, and closes it.
func (c *Client) Serve() {
	defer func() {
		_ = c.sock.Close()
		c.over(nil)
		c.in.give()
		c.out.give()
	}()
	// The order matters: over must find this undone.
	defer context.AfterFunc(c.ctx, func() { c.Cut(context.Cause(c.ctx)) })()
	for c.next() {
		c.x.begin()
		c.cfg.Handler.Serve(&c.x)
		if !c.x.end() {
			return
		}
		c.out.give()
	}
}

// next waits for a request's head. It gives false when the connection is over.
func (c *Client) next() bool {
	var by instant
	for {
		if len(c.in.data()) > 0 {
			n, err := c.x.req.Parse(c.in.data(), c.cfg.Limits)
			if err != nil {
				c.refuse(err)
				return false
			}
			if n > 0 {
				c.in.r += n
				return true
			}
			if by == 0 {
				by = in(c.cfg.HeaderTimeout)
			}
			if !c.more(by) {
				return false
			}
			continue
		}
		c.in.give()
		if !c.idle() {
			return false
		}
	}
}

// idle waits for the first byte of a head.
func (c *Client) idle() bool {
	by := in(c.cfg.IdleTimeout)
	for {
		if c.leaving.Load() {
			by = earliest(by, in(settle))
		}
		err := c.sock.fill(&c.in, by)
		switch {
		case err == nil:
			return true
		case !errors.Is(err, errWoken) || c.cutBy.Load() != nil:
			return false
		}
	}
}

// more reads on in a head that has begun.
func (c *Client) more(by instant) bool {
	if len(c.in.space()) == 0 {
		if c.in.r > headroom {
			c.in.compact()
		} else {
			// The limit of a head is reached before this could go on for ever.
			c.in.enlarge(max(largeBuffer, c.cfg.Limits.Bytes))
		}
	}
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

var errLateHead = &http1.Error{Status: http.StatusRequestTimeout, Text: "the head did not come in time"}

// refuse answers what is not a request, and ends the connection: nobody can know where the next one would begin.
func (c *Client) refuse(err error) {
	e, ok := errors.AsType[*http1.Error](err)
	if !ok {
		return
	}
	if c.cfg.Refused != nil {
		c.cfg.Refused(c.sock.RemoteAddr(), e)
	}
	text := "freshmesh: client: malformed request: " + e.Text + "\n"
	var b []byte
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(e.Status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(e.Status)...)
	b = append(b, "\r\nproxy-status: freshmesh; error=http_request_error; details=\""...)
	b = append(b, e.Text...)
	b = append(b, "\"\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: "...)
	b = strconv.AppendInt(b, int64(len(text)), 10)
	b = append(b, "\r\n\r\n"...)
	b = append(b, text...)
	if _, err := c.sock.write(b, in(settle)); err == nil {
		c.linger()
	}
}

// linger lets the client read what was written last: a connection that is closed
// with unread bytes in it is reset, and the client may lose the response with it.
func (c *Client) linger() {
	half, ok := c.sock.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.in.take()
	by := in(settle)
	for left := 16 << 20; left > 0; {
		n, err := c.sock.read((*c.in.mem)[headroom:], by)
		if err != nil && !errors.Is(err, errWoken) || c.cutBy.Load() != nil {
			return
		}
		left -= n
	}
}
