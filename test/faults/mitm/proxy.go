package mitm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// dialTimeout bounds the dial to the target.
const dialTimeout = 5 * time.Second

// Proxy accepts connections on 127.0.0.1 and relays each over one connection of
// its own to the target. Its methods may be called from any goroutine, but not
// from the functions given to it.
type Proxy struct {
	listener *net.TCPListener
	addr     netip.AddrPort
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	tally    tally

	// faults is replaced whole under mu.
	faults atomic.Pointer[faults]

	mu     sync.Mutex // guards target, last, pairs, silent, closed and the replacing of faults
	target string
	last   int // the number of the last connection
	pairs  map[*pair]struct{}
	silent map[net.Conn]struct{} // connections without a counterpart, accepted under HalfOpen
	closed bool
}

// Listen begins to relay from a free port of 127.0.0.1 to target (host:port).
// The target need not be there yet: a connection that cannot be relayed is reset.
func Listen(target string) (*Proxy, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", target, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{
		listener: listener, target: target, cancel: cancel,
		pairs: make(map[*pair]struct{}), silent: make(map[net.Conn]struct{}),
	}
	addr := listener.Addr().(*net.TCPAddr).AddrPort()
	p.addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	p.faults.Store(&faults{})
	p.tally.messages = make(map[Kind]int)
	p.wg.Go(func() { p.serve(ctx) })
	return p, nil
}

// Addr is where clients connect to.
func (p *Proxy) Addr() netip.AddrPort { return p.addr }

// SetTarget names the target of connections that are accepted from now on.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Close ends the listener and all connections, without ceremony, and waits for
// every goroutine. It may be called again. The error is the listener's.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	err := p.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	p.closeSilent()
	p.command(func(q *pair) { q.abort(false) })
	p.wg.Wait()
	if err != nil {
		return fmt.Errorf("close %s: %w", p.addr, err)
	}
	return nil
}

func (p *Proxy) serve(ctx context.Context) {
	for {
		conn, err := p.listener.AcceptTCP()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				continue // a connection that was gone before it was accepted
			}
			return
		}
		p.tally.add(&p.tally.stats.Connections, 1)
		p.wg.Go(func() { p.handle(ctx, conn) })
	}
}

// handle carries one accepted connection to its end.
func (p *Proxy) handle(ctx context.Context, client *net.TCPConn) {
	if p.faults.Load().refuse > 0 {
		p.tally.add(&p.tally.stats.Refused, 1)
		closeReset(client)
		return
	}
	if p.keepSilent(client) {
		return
	}
	server, err := p.dial(ctx)
	if err != nil {
		p.tally.add(&p.tally.stats.DialFailures, 1)
		closeReset(client)
		return
	}
	if p.keepSilent(client) { // the fault came meanwhile
		server.Close()
		return
	}
	q := p.register(client, server)
	if q == nil {
		client.Close()
		server.Close()
		return
	}
	p.tally.add(&p.tally.stats.Open, 1)
	q.run()
	p.tally.add(&p.tally.stats.Open, -1)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pairs, q)
}

func (p *Proxy) dial(ctx context.Context) (*net.TCPConn, error) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, err)
	}
	return conn.(*net.TCPConn), nil
}

// register makes the pair known to the faults; nil after Close.
func (p *Proxy) register(client, server *net.TCPConn) *pair {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.last++
	q := newPair(p, p.last, client, server)
	q.dead = p.faults.Load().halfOpen > 0
	p.pairs[q] = struct{}{}
	return q
}

// keepSilent swallows what the client sends, to the connection's end, if
// HalfOpen is in force; otherwise it returns false at once.
func (p *Proxy) keepSilent(client net.Conn) bool {
	p.mu.Lock()
	silent := p.faults.Load().halfOpen > 0 && !p.closed
	if silent {
		p.silent[client] = struct{}{}
	}
	p.mu.Unlock()
	if !silent {
		return false
	}
	_, _ = io.Copy(io.Discard, client)
	client.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.silent, client)
	return true
}

func (p *Proxy) closeSilent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.silent {
		conn.Close()
	}
}

// change replaces the faults and returns when every pair has adopted them.
func (p *Proxy) change(edit func(*faults)) {
	p.mu.Lock()
	next := p.faults.Load().clone()
	edit(next)
	p.faults.Store(next)
	p.mu.Unlock()
	p.command((*pair).adopt)
}

// command has every pair's owner call do, and waits for them.
func (p *Proxy) command(do func(*pair)) {
	p.mu.Lock()
	pairs := make([]*pair, 0, len(p.pairs))
	for q := range p.pairs {
		pairs = append(pairs, q)
	}
	p.mu.Unlock()
	for _, q := range pairs {
		q.command(do)
	}
}

func closeReset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // so that Close sends RST
	conn.Close()
}
