package relay

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// PoolConfig is what a Pool is made of.
type PoolConfig struct {
	// Address is for errors.
	Address netip.AddrPort
	// Dial makes a connection; its error is an *upstream.Error with Unsent.
	Dial func(context.Context) (net.Conn, error)
	// IdleTimeout closes connections that nobody used for so long; 0 is 60 s.
	IdleTimeout time.Duration
	// MaxIdle bounds how many connections are kept; 0 is 1,024.
	MaxIdle int
	// Limits bound the heads of responses.
	Limits http1.Limits
}

// Pool keeps the connections to one endpoint. It is safe for concurrent use,
// and has no goroutine but for those of its timers.
type Pool struct {
	cfg PoolConfig

	mu sync.Mutex // guards all below
	// idle are the connections that carry nothing, the one used last at the end.
	idle    []*Conn
	all     map[*Conn]struct{}
	retired bool
	// reap closes idle connections, kill all of them; nil when not set.
	reap, kill *time.Timer
}

// NewPool makes an empty pool; it dials nothing.
func NewPool(cfg PoolConfig) *Pool {
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = 60 * time.Second
	}
	if cfg.MaxIdle <= 0 {
		cfg.MaxIdle = 1024
	}
	return &Pool{cfg: cfg, all: map[*Conn]struct{}{}}
}

// Conn is a connection to an endpoint, reserved for one request: it belongs to
// who acquired it. Exchange.Send or Release must be called.
type Conn struct {
	pool *Pool
	sock *socket
	// used is how many requests it has carried, idleSince when the last one ended.
	used      int
	idleSince instant

	in   window
	resp http1.Response
	// broken: it must not be used again.
	broken bool
}

// Acquire gives an idle connection that its server has not closed, or a new
// one. Nothing of a request has been sent; the error is an *upstream.Error with Unsent.
func (p *Pool) Acquire(ctx context.Context) (*Conn, error) {
	for {
		c, err := p.pop()
		if err != nil {
			return nil, err
		}
		if c == nil {
			return p.open(ctx)
		}
		// A server that closed it, or said something unasked, is not asked again on it (RFC 9112 section 9.3).
		if quiet, _ := c.sock.quiet(); quiet {
			return c, nil
		}
		c.close()
	}
}

// pop gives the idle connection that was used last; nil for none.
func (p *Pool) pop() (*Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		return nil, upstream.Removed(p.cfg.Address)
	}
	n := len(p.idle)
	if n == 0 {
		return nil, nil
	}
	c := p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	return c, nil
}

// open makes a connection, unless the pool was retired meanwhile.
func (p *Pool) open(ctx context.Context) (*Conn, error) {
	nc, err := p.cfg.Dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &Conn{pool: p, sock: newSocket(nc)}
	p.mu.Lock()
	retired := p.retired
	if !retired {
		p.all[c] = struct{}{}
	}
	p.mu.Unlock()
	if retired {
		_ = nc.Close()
		return nil, upstream.Removed(p.cfg.Address)
	}
	return c, nil
}

// parse reads a head of which the first had bytes were no whole one; 0 if more must come.
func (c *Conn) parse(method string, had int) (int, error) {
	p, l := c.in.data(), c.pool.cfg.Limits
	if http1.Unfinished(p, had, l) {
		return 0, nil
	}
	return c.resp.Parse(p, method, l)
}

// Release gives the connection back, unused or after its request; one that cannot be used again is closed.
func (c *Conn) Release() {
	if c.broken || len(c.in.data()) > 0 {
		// Bytes after the answer answer nothing.
		c.close()
		return
	}
	c.in.give()
	c.idleSince = now()
	p := c.pool
	p.mu.Lock()
	keep := !p.retired && len(p.idle) < p.cfg.MaxIdle
	if keep {
		p.idle = append(p.idle, c)
		if p.reap == nil {
			p.reap = time.AfterFunc(p.cfg.IdleTimeout, p.reapIdle)
		}
	}
	p.mu.Unlock()
	if !keep {
		c.close()
	}
}

// takeBody takes data of the response's body out of what was read; done is its end. left is what is still to come where
// the length is known. A body that ends with the connection is never done.
func (c *Conn) takeBody(left *int64, decoder *http1.Chunked) (data []byte, done bool, err error) {
	p := c.in.data()
	switch {
	case c.resp.Chunked:
		used := 0
		data, used, done, err = decoder.Decode(p)
		c.in.r += used
	case c.resp.Length >= 0:
		data = p[:min(int64(len(p)), *left)]
		*left -= int64(len(data))
		done = *left == 0
		c.in.r += len(data)
	default:
		data = p
		c.in.r = c.in.w
	}
	return data, done, err
}

func (c *Conn) close() {
	c.in.give()
	c.pool.mu.Lock()
	delete(c.pool.all, c)
	c.pool.mu.Unlock()
	_ = c.sock.Close()
}

// reapIdle closes what has been idle for the idle timeout.
func (p *Pool) reapIdle() {
	old := now() - instant(p.cfg.IdleTimeout)
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && p.idle[n].idleSince <= old {
		n++
	}
	victims := p.cut(n)
	p.reap = nil
	if len(p.idle) > 0 && !p.retired {
		p.reap = time.AfterFunc(time.Duration(p.idle[0].idleSince-old), p.reapIdle)
	}
	p.mu.Unlock()
	closeAll(victims)
}

// cut takes the n connections that have been idle longest. It needs mu. They are in the order of
// their last use, but for small races in Release.
func (p *Pool) cut(n int) []*Conn {
	victims := append([]*Conn(nil), p.idle[:n]...)
	left := copy(p.idle, p.idle[n:])
	clear(p.idle[left:])
	p.idle = p.idle[:left]
	return victims
}

func closeAll(conns []*Conn) {
	for _, c := range conns {
		c.close()
	}
}

// Open is how many connections are open.
func (p *Pool) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all)
}

// CloseIdle closes the connections that carry nothing now.
func (p *Pool) CloseIdle() {
	p.mu.Lock()
	victims := p.cut(len(p.idle))
	p.mu.Unlock()
	closeAll(victims)
}

// CloseOneIdle closes the connection that has carried nothing for longest; false where each carries something.
func (p *Pool) CloseOneIdle() bool {
	p.mu.Lock()
	victims := p.cut(min(1, len(p.idle)))
	p.mu.Unlock()
	closeAll(victims)
	return len(victims) > 0
}

// Retire takes no new work, closes idle connections at once and the others when
// they have finished, or after drain; below 0 is never. It does not wait.
func (p *Pool) Retire(drain time.Duration) {
	p.mu.Lock()
	p.retired = true
	if p.reap != nil {
		p.reap.Stop()
	}
	victims := p.cut(len(p.idle))
	if p.kill == nil && drain >= 0 && len(p.all) > len(victims) {
		p.kill = time.AfterFunc(drain, p.Close)
	}
	p.mu.Unlock()
	closeAll(victims)
}

// Close retires the pool and closes everything now, whatever it carries; who is at it gets an error.
func (p *Pool) Close() {
	p.mu.Lock()
	p.retired = true
	for _, t := range []*time.Timer{p.reap, p.kill} {
		if t != nil {
			t.Stop()
		}
	}
	idle := p.cut(len(p.idle))
	var busy []*Conn
	for c := range p.all {
		busy = append(busy, c)
	}
	p.mu.Unlock()
	closeAll(idle)
	for _, c := range busy {
		// Its user gives the memory back and takes it off the books.
		_ = c.sock.Close()
	}
}
