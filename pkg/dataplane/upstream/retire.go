package upstream

import (
	"context"
	"io"
	"maps"
	"net"
	"slices"
	"time"
)

// Raw is an opaque TCP connection to an endpoint. Close must be called; it
// also takes the connection off the pool's books.
type Raw struct {
	*net.TCPConn
	pool  *Pool
	leave func()
}

// Close closes the connection.
func (r *Raw) Close() error {
	r.pool.mu.Lock()
	delete(r.pool.tunnels, r)
	r.pool.mu.Unlock()
	defer r.leave()
	return r.TCPConn.Close()
}

// Dial makes an opaque connection. Its error is an *Error with Unsent.
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
		p.tunnels[r] = struct{}{}
	}
	p.mu.Unlock()
	if retired {
		_ = r.Close()
		return nil, p.gone()
	}
	return r, nil
}

// switched is a connection that changed protocols, seen from the response: the
// pool has lost it as an HTTP connection, and must close it all the same.
type switched struct {
	io.ReadWriteCloser
	pool *Pool
	tcp  *net.TCPConn
}

// Socket is the connection itself, to look at and not to use.
func (s *switched) Socket() *net.TCPConn { return s.tcp }

// book puts a connection that changed protocols on the books.
func (p *Pool) book(rw io.ReadWriteCloser, tcp *net.TCPConn) *switched {
	s := &switched{rw, p, tcp}
	p.mu.Lock()
	p.tunnels[s] = struct{}{}
	p.mu.Unlock()
	return s
}

// Close closes the connection.
func (s *switched) Close() error {
	s.pool.mu.Lock()
	delete(s.pool.tunnels, s)
	s.pool.mu.Unlock()
	return s.ReadWriteCloser.Close()
}

// CloseWrite ends the writing side alone where that is possible, and the whole elsewhere.
func (s *switched) CloseWrite() error {
	if h, ok := s.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return s.Close()
}

// CloseIdle closes the connections that carry nothing now.
func (p *Pool) CloseIdle() {
	p.mu.Lock()
	victims := p.takeIdle(func(*conn) bool { return true })
	p.mu.Unlock()
	closeAll(victims)
}

// Retire takes no new work, closes idle connections at once and the others
// when they have finished, or after drain; below 0 is never. It does not wait.
func (p *Pool) Retire(drain time.Duration) {
	p.mu.Lock()
	p.retired = true
	victims := p.takeIdle(func(*conn) bool { return true })
	if p.reap != nil {
		p.reap.Stop()
		p.reap = nil
	}
	if p.kill == nil && drain >= 0 && len(p.conns)+len(p.tunnels) > 0 {
		p.kill = time.AfterFunc(drain, p.Close)
	}
	p.mu.Unlock()
	closeAll(victims)
}

// Close retires the pool and closes everything now, whatever it carries.
func (p *Pool) Close() {
	p.mu.Lock()
	p.retired = true
	conns := p.conns
	p.conns = nil
	tunnels := slices.Collect(maps.Keys(p.tunnels))
	clear(p.tunnels)
	for _, t := range []*time.Timer{p.reap, p.kill} {
		if t != nil {
			t.Stop()
		}
	}
	p.reap = nil
	shared := p.shared
	p.mu.Unlock()
	closeAll(conns)
	for _, t := range tunnels {
		_ = t.Close()
	}
	if shared != nil {
		shared.cancel()
		<-shared.done
	}
}

func (p *Pool) gone() *Error {
	return &Error{Reason: EndpointRemoved, NextHop: p.cfg.Address, Unsent: true, Unanswered: true}
}
