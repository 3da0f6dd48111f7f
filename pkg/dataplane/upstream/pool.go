package upstream

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Config is what a Pool is made of.
type Config struct {
	Address netip.AddrPort
	// ConnectTimeout bounds one dial; 0 is 5 s.
	ConnectTimeout time.Duration
	// Gate limits connections; nil for no limit.
	Gate Gate
}

// Gate is asked before each connection for traffic; a Probe needs no leave.
// Both methods may be called from any goroutine, also under the pool's work, and must not block.
type Gate interface {
	// Open takes a place for a connection; an error refuses it, and is the cause under the reason BreakerConnections.
	Open() error
	// Closed gives the place of a connection back, or of a dial that failed. It is called once for each Open that gave nil.
	Closed()
}

// Upstream is what the relays need of an endpoint. *Pool is one.
type Upstream interface {
	// Dial makes a connection. Its error is an *Error with Unsent.
	Dial(ctx context.Context) (*Raw, error)
	// Probe tells whether the endpoint accepts connections. Its error is an *Error.
	Probe(ctx context.Context) error
	// Retire makes no more connections; those there are get drain to finish, or for ever if that is below 0.
	Retire(drain time.Duration)
	// Close closes everything now.
	Close()
}

// Pool is all connections to one endpoint, whatever they carry.
type Pool struct {
	cfg    Config
	dialer net.Dialer

	mu      sync.Mutex // guards all below
	open    map[*Raw]struct{}
	retired bool
	// kill closes everything; nil when not set.
	kill *time.Timer
}

// New makes an empty pool; it dials nothing.
func New(cfg Config) *Pool {
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	return &Pool{cfg: cfg, open: map[*Raw]struct{}{}}
}

// Open is how many connections are open.
func (p *Pool) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// enter asks the gate, dials, and gives what leaves the gate again, once.
func (p *Pool) enter(ctx context.Context) (*net.TCPConn, func(), error) {
	if p.cfg.Gate == nil {
		c, err := p.dial(ctx)
		return c, func() {}, err
	}
	if err := p.cfg.Gate.Open(); err != nil {
		return nil, nil, &Error{Reason: BreakerConnections, NextHop: p.cfg.Address, Unsent: true, Unanswered: true, Err: err}
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
	KeepAlive(tcp)
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
