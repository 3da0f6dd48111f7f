package upstream

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
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

// Upstream is what package endpoints needs of an endpoint. *Pool is one; tests make others.
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

// Retire makes no more connections and closes those that are still there
// after drain; below 0 is never. It does not wait.
func (p *Pool) Retire(drain time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
	if p.kill == nil && drain >= 0 && len(p.open) > 0 {
		p.kill = time.AfterFunc(drain, p.Close)
	}
}

// Close retires the pool and closes everything now.
func (p *Pool) Close() {
	p.mu.Lock()
	p.retired = true
	all := slices.Collect(maps.Keys(p.open))
	if p.kill != nil {
		p.kill.Stop()
	}
	p.mu.Unlock()
	for _, r := range all {
		_ = r.Close()
	}
}
