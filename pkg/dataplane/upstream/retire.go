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
	// closed is called by Close, once; nil for nothing. The pool's lock guards it.
	closed func()
}

// Close closes the connection.
func (r *Raw) Close() error {
	r.pool.mu.Lock()
	delete(r.pool.open, r)
	closed := r.closed
	r.closed = nil
	r.pool.mu.Unlock()
	defer r.leave()
	err := r.TCPConn.Close()
	if closed != nil {
		closed()
	}
	return err
}

// OnClose has f called when the connection has been closed here, as at the end of an endpoint's drain: whoever waits for
// another connection that it is copied to would not find out. f must not block. What OnClose gives undoes it.
func (r *Raw) OnClose(f func()) (undo func()) {
	r.set(f)
	return func() { r.set(nil) }
}

func (r *Raw) set(closed func()) {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	r.closed = closed
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
