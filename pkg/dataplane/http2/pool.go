package http2

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// PoolConfig is what a Pool is made of.
type PoolConfig struct {
	Address netip.AddrPort
	// ConnectTimeout bounds the making of a connection, up to the endpoint's settings; 0 is 5 s.
	ConnectTimeout time.Duration
	// Queue bounds those who wait for a place where no further connection may be had (Pool.Patient); nil is without limit.
	Queue Queue
	// Dial makes a connection, within ConnectTimeout; its error is an *upstream.Error with Unsent. nil dials Address.
	Dial func(context.Context) (net.Conn, error)
	// Conn has the limits of the connections.
	Conn Config
}

// Pool has the connections to one endpoint. It is an Opener. All methods may be
// called from any goroutine; its goroutines are those of the connections, for
// which Close waits.
//
// A request takes the first connection with a place for it. If none has one,
// another connection is made, unless enough are being made already, and it waits for that:
//
//	             a place                          a place
//	arriving ───────────────▶ sent   ┌───────────────────────────────▶ sent
//	    │ none                       │
//	    └─────▶ waiting for a dial ──┤ no further connection may be had
//	                                 ├─ patient ─────▶ waiting for a place, in order
//	                                 └─ impatient ───▶ failed with StreamLimit: another endpoint may have room
//
// Who is patient says so by its Opener (Patient). Both kinds wait in one queue.
//
// A connection whose endpoint allows no stream at all, which is for a while (RFC 9113 section 6.5.2), is waited
// for too: a further one would be told the same.
type Pool struct {
	cfg        PoolConfig
	connConfig *Config
	// ctx ends with Close.
	ctx    context.Context //nolint:containedctx // the pool's own: it ends what the pool began
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu sync.Mutex // guards all below; a connection's lock may be taken under it, but no Near is called
	// conns are those that take requests, dialling how many are being made.
	conns    []*endpointConn
	leaving  map[*endpointConn]struct{}
	dialling int
	queue    []waiter
	// patients is how many of the queue are patient.
	patients int
	// atLimit: the last dial was refused by the limit of connections, and nobody said since that there may be one.
	// limitRaised: somebody said so (Wake) while a dial was under way.
	atLimit, limitRaised bool
	// lastMiss is why a connection was not made, the last time.
	lastMiss *upstream.Error
	// pause is set after a connection came to nothing, while patient requests wait: until it is over none is made for them.
	pause   *time.Timer
	retired bool
	kill    *time.Timer

	// waiters is the length of queue, for those who give a place back and may not take mu.
	waiters atomic.Int64
}

// NewPool makes an empty pool; it dials nothing.
func NewPool(cfg PoolConfig) *Pool {
	orDefault(&cfg.ConnectTimeout, 5*time.Second)
	if cfg.Queue == nil {
		cfg.Queue = unbounded{}
	}
	if cfg.Dial == nil {
		cfg.Dial = dialer(upstream.New(upstream.Config{Address: cfg.Address, ConnectTimeout: cfg.ConnectTimeout}))
	}
	p := &Pool{cfg: cfg, connConfig: cfg.Conn.withDefaults(), leaving: map[*endpointConn]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Open implements Opener.
func (p *Pool) Open(t *Turn, near Near, token uint64, r *message.Request, end, waited bool) (Far, uint64, error) {
	return p.open(t, waiter{near, token, false}, r, end, waited)
}

// patient is a Pool whose requests wait for a place.
type patientPool Pool

// Patient gives the Opener of requests that wait for a place where none is to be had now.
func (p *Pool) Patient() Opener { return (*patientPool)(p) }

// Open implements Opener.
func (p *patientPool) Open(t *Turn, near Near, token uint64, r *message.Request, end, waited bool) (Far, uint64, error) {
	return (*Pool)(p).open(t, waiter{near, token, true}, r, end, waited)
}

// Cancel implements Opener.
func (p *patientPool) Cancel(near Near, token uint64) { (*Pool)(p).Cancel(near, token) }

// open has w sent on the first connection with a place, or queued. One that waited already goes before those in the queue,
// whom any other may not overtake.
func (p *Pool) open(t *Turn, w waiter, r *message.Request, end, waited bool) (Far, uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		return nil, 0, upstream.Removed(p.cfg.Address)
	}
	if waited || len(p.queue) == 0 {
		for _, c := range p.conns {
			k, kt, err := c.open(t, w.near, w.token, r, end)
			if err != nil {
				return nil, 0, err
			}
			if k != nil {
				return k, kt, nil
			}
		}
	}
	return nil, 0, p.wait(t, w, waited)
}

// places is how many requests may be opened on the connections there are, up to most. It needs mu.
func (p *Pool) places(most int) int {
	n := 0
	for _, c := range p.conns {
		if n += c.places(most - n); n >= most {
			break
		}
	}
	return n
}

// enoughDialling tells whether the connections that are being made will carry n
// requests: each as many as those that are there do, 100 where there is none. It needs mu.
func (p *Pool) enoughDialling(n int) bool {
	if p.dialling == 0 {
		return false
	}
	each := 100
	for _, c := range p.conns {
		c.mu.Lock()
		each = int(min(uint32(each), max(1, c.peerStreams)))
		c.mu.Unlock()
	}
	return n <= p.dialling*each
}

// CloseIdle closes the connections that carry nothing now, unless somebody waits for a place: it is about to have one.
func (p *Pool) CloseIdle() {
	if p.wanted() {
		return
	}
	for _, c := range p.inService() {
		c.quitIfIdle()
	}
}

// CloseOneIdle is CloseIdle for one of them; false where there is none. Its place in the limit of connections is free then.
func (p *Pool) CloseOneIdle() bool {
	return !p.wanted() && slices.ContainsFunc(p.inService(), (*endpointConn).quitIfIdle)
}

// inService gives the connections that take requests.
func (p *Pool) inService() []*endpointConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.conns)
}

// Retire takes no new work; what is in flight gets drain to finish, or for ever if that is below 0. It does not
// wait, and may be called with a lock held that a Near needs.
func (p *Pool) Retire(drain time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
	if p.kill == nil && drain >= 0 {
		p.kill = time.AfterFunc(drain, p.cutAll)
	}
	p.all.Go(func() {
		var t Turn
		p.mu.Lock()
		all := p.pick(everybody)
		p.mu.Unlock()
		failEach(&t, all, upstream.Removed(p.cfg.Address))
		t.end()
		for _, c := range p.inService() {
			c.leave()
		}
	})
}

// cutAll closes every connection now.
func (p *Pool) cutAll() {
	p.mu.Lock()
	all := slices.Clone(p.conns)
	for c := range p.leaving {
		all = append(all, c)
	}
	p.mu.Unlock()
	for _, c := range all {
		c.cut(&upstream.Error{Reason: upstream.EndpointRemoved, NextHop: p.cfg.Address, Err: errors.New("the drain time is over")})
	}
}

// Close retires the pool, closes everything now and waits for it.
func (p *Pool) Close() {
	p.Retire(-1)
	p.cutAll()
	p.cancel()
	p.mu.Lock()
	for _, timer := range []*time.Timer{p.kill, p.pause} {
		if timer != nil {
			timer.Stop()
		}
	}
	p.mu.Unlock()
	p.all.Wait()
}
