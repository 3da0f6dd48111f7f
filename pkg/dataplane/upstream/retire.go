package upstream

import (
	"context"
	"maps"
	"net"
	"slices"
	"time"
)

// Raw is a TCP connection to an endpoint. Close must be called; it
// also takes the connection off the pool's books.
type Raw struct {
	*net.TCPConn
	pool  *Pool
	leave func()
}

// Yield gives the place in the limit of connections (Gate) back before Close: nothing is on the connection any more.
func (r *Raw) Yield() { r.leave() }

// Close closes the connection.
func (r *Raw) Close() error {
	r.pool.mu.Lock()
	delete(r.pool.open, r)
	r.pool.mu.Unlock()
	defer r.leave()
	return r.TCPConn.Close()
}

// Dial makes a connection. Its error is an *Error with Unsent.
func (p *Pool) Dial(ctx context.Context) (*Raw, error) {
	p.mu.Lock()
	retired := p.retired
	p.mu.Unlock()
	if retired {
		return nil, p.gone()
	}
	tcp, leave, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	r := &Raw{TCPConn: tcp, pool: p, leave: leave}
	p.mu.Lock()
	retired = p.retired
	if !retired {
		p.open[r] = struct{}{}
	}
	p.mu.Unlock()
	if retired {
		_ = r.Close()
		return nil, p.gone()
	}
	return r, nil
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

func (p *Pool) gone() *Error {
	return &Error{Reason: EndpointRemoved, NextHop: p.cfg.Address, Unsent: true, Unanswered: true}
}
