package upstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Config is what a Pool is made of.
type Config struct {
	Address netip.AddrPort
	// HTTP2 makes the pool speak HTTP/2 by prior knowledge (RFC 9113 section 3.3).
	HTTP2 bool
	// ConnectTimeout bounds one dial; 0 is 5 s.
	ConnectTimeout time.Duration
	// IdleTimeout closes connections that nobody used for so long; 0 is 60 s.
	// It should be shorter than what servers allow, since a server that closes
	// first may do so under a request.
	IdleTimeout time.Duration
	// Gate limits connections; nil for no limit.
	Gate Gate
}

// Gate is asked before each connection for traffic; a Probe needs no leave.
// Both methods may be called from any goroutine, also under the pool's work, and must not block.
type Gate interface {
	// Open takes a place for a connection; false refuses it, with the reason BreakerConnections.
	Open() bool
	// Closed gives the place of a connection back, or of a dial that failed. It is called once for each Open.
	Closed()
}

// Upstream is what the proxy needs of the connections to one endpoint. A
// faster relay that takes Pool's place must keep these promises:
//   - Acquire sends nothing of a request, and its failure is an *Error with Unsent;
//   - a Conn is used for one request and retries nothing;
//   - an error of RoundTrip is an *Error whose Unsent is true only if no peer can have acted on the request;
//   - so is an error of reading a response's body, but for io.EOF;
//   - Retire refuses new work at once and lets what is in flight finish;
//   - a response's header still has Connection, so that the fields it names stay
//     behind. Pool falls short of this: net/http takes Connection off a response
//     that has "close" in it, and there is no other way to it, so fields named
//     beside close ("Connection: X-Hop, close") go on to the client.
type Upstream interface {
	Acquire(ctx context.Context) (Conn, error)
	Dial(ctx context.Context) (*Raw, error)
	Probe(ctx context.Context) error
	CloseIdle()
	// Retire takes no new work; what is in flight gets drain to finish, or for ever if that is below 0.
	Retire(drain time.Duration)
	Close()
}

// Conn is a connection with room reserved for one request. Exactly one of
// RoundTrip and Release must be called.
type Conn interface {
	// RoundTrip sends the request once. The response's body must be closed,
	// which gives the room back. Errors are *Error.
	RoundTrip(*http.Request) (*http.Response, error)
	// Release gives the room back unused.
	Release()
}

// Pool is the Upstream on net/http's single connections.
type Pool struct {
	cfg    Config
	dialer net.Dialer
	// http makes connections; its own pool stays empty.
	http *http.Transport

	mu sync.Mutex // guards all below
	// conns are all open HTTP connections, oldest first; idle ones are taken from the end.
	conns []*conn
	// tunnels are the connections that carry no HTTP (any more): *Raw and *switched.
	tunnels map[io.Closer]struct{}
	retired bool
	// shared is the dial of an HTTP/2 connection that is under way, nil when there is none.
	shared *sharedDial
	// reap closes idle connections, kill all of them; nil when not set.
	reap, kill *time.Timer
}

// New makes an empty pool; it dials nothing.
func New(cfg Config) *Pool {
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = 60 * time.Second
	}
	p := &Pool{cfg: cfg, tunnels: map[io.Closer]struct{}{}}
	var protocols http.Protocols
	protocols.SetHTTP1(!cfg.HTTP2)
	protocols.SetUnencryptedHTTP2(cfg.HTTP2)
	p.http = &http.Transport{
		DialContext:           p.dialHTTP,
		DisableCompression:    true,
		ExpectContinueTimeout: time.Second,
		Protocols:             &protocols,
		IdleConnTimeout:       cfg.IdleTimeout,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
		WriteBufferSize:       16 << 10,
		ReadBufferSize:        16 << 10,
	}
	return p
}

// Open is how many connections are open, whatever they carry.
func (p *Pool) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) + len(p.tunnels)
}

// enter asks the gate, dials, and gives what leaves the gate again, once.
func (p *Pool) enter(ctx context.Context) (*net.TCPConn, func(), error) {
	if p.cfg.Gate == nil {
		c, err := p.dial(ctx)
		return c, func() {}, err
	}
	if !p.cfg.Gate.Open() {
		return nil, nil, &Error{Reason: BreakerConnections, NextHop: p.cfg.Address, Unsent: true, Unanswered: true}
	}
	c, err := p.dial(ctx)
	if err != nil {
		p.cfg.Gate.Closed()
	}
	return c, sync.OnceFunc(p.cfg.Gate.Closed), err
}

func (p *Pool) dial(ctx context.Context) (*net.TCPConn, error) {
	bounded, cancel := context.WithTimeout(ctx, p.cfg.ConnectTimeout)
	defer cancel()
	c, err := p.dialer.DialContext(bounded, "tcp", p.cfg.Address.String())
	if err != nil {
		return nil, dialError(ctx, p.cfg.Address, err)
	}
	tcp := c.(*net.TCPConn)
	Watch(tcp)
	return tcp, nil
}

// Probe dials and closes: it tells whether the endpoint accepts connections.
// The error is an *Error.
func (p *Pool) Probe(ctx context.Context) error {
	c, err := p.dial(ctx)
	if err != nil {
		return err
	}
	return c.Close()
}
