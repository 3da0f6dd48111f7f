package upstream

import (
	"context"
	"net"
	"sync"
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

// Vacate gives the place in the limit of connections (Gate) back before Close: nothing is on the connection any more.
func (r *Raw) Vacate() { r.leave() }

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
// another connection that it is copied to would not find out. Where it has been closed already that is at once. f must not
// block. What OnClose gives undoes it; that must be done before the connection goes to somebody else.
func (r *Raw) OnClose(f func()) (undo func()) {
	if !r.set(f) {
		f()
	}
	return func() { r.set(nil) }
}

// set gives false where the connection has been closed.
func (r *Raw) set(closed func()) bool {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	r.closed = closed
	_, open := r.pool.open[r]
	return open
}

// Dial makes a connection. Its error is an *Error with Unsent.
func (p *Pool) Dial(ctx context.Context) (*Raw, error) {
	p.mu.Lock()
	retired := p.retired
	p.mu.Unlock()
	if retired {
		return nil, Removed(p.cfg.Address)
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
		return nil, Removed(p.cfg.Address)
	}
	return r, nil
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

// dial makes a connection within ConnectTimeout.
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
