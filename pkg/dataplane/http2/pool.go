package http2

import (
	"context"
	"errors"
	"fmt"
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
	// MaxWaiting is how many requests may wait for a place; 0 is 1024. Below 0 is none but those that wait for a
	// connection which is being made.
	MaxWaiting int
	// DialAfter is how many may wait for a place on the connections there are before another one is made; 0 makes one at once.
	DialAfter int
	// Dial makes a connection, within ConnectTimeout; its error is an *upstream.Error with Unsent. nil dials Address.
	Dial func(context.Context) (net.Conn, error)
	// Conn has the limits of the connections.
	Conn Config
}

// Pool has the connections to one endpoint. It is an Opener. All methods may be
// called from any goroutine; its goroutines are those of the connections, for
// which Close waits.
//
// A request takes the first connection with a place for it. If none has one it
// waits, and where more than DialAfter do, another connection is made, unless
// enough are being made already. If more than MaxWaiting would wait, it
// fails with StreamLimit.
type Pool struct {
	cfg  PoolConfig
	conn *Config
	// ctx ends with Close.
	ctx    context.Context //nolint:containedctx // the pool's own: it ends what the pool began
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu sync.Mutex // guards all below; a connection's lock may be taken under it, but no Near is called
	// conns are those that take requests, dialling how many are being made.
	conns    []*Client
	leaving  map[*Client]struct{}
	dialling int
	queue    []waiter
	retired  bool
	kill     *time.Timer

	// waiters is the length of queue.
	waiters atomic.Int64
}

type waiter struct {
	near  Near
	token uint64
}

// NewPool makes an empty pool; it dials nothing.
func NewPool(cfg PoolConfig) *Pool {
	orDefault(&cfg.ConnectTimeout, 5*time.Second)
	orDefault(&cfg.MaxWaiting, 1024)
	if cfg.Dial == nil {
		cfg.Dial = dialer(upstream.New(upstream.Config{Address: cfg.Address, ConnectTimeout: cfg.ConnectTimeout}))
	}
	p := &Pool{cfg: cfg, conn: cfg.Conn.withDefaults(), leaving: map[*Client]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Open implements Opener.
func (p *Pool) Open(t *Turn, near Near, token uint64, r *message.Request, end, waited bool) (Far, uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		return nil, 0, p.gone()
	}
	if waited || len(p.queue) == 0 {
		for _, c := range p.conns {
			k, kt, err := c.open(t, near, token, r, end)
			if err != nil {
				return nil, 0, err
			}
			if k != nil {
				return k, kt, nil
			}
		}
	}
	return nil, 0, p.wait(t, near, token, waited)
}

// wait queues a request, and has a connection made for it. It needs mu.
func (p *Pool) wait(t *Turn, near Near, token uint64, waited bool) error {
	n := len(p.queue) + 1
	// Whoever gives a place back from now on sees that it is wanted; one that was given back before is found here.
	p.waiters.Store(int64(n))
	free := p.places(n)
	if free > 0 {
		// For those who wait already.
		t.Add(p)
	}
	if n > free+p.cfg.DialAfter && !p.enough(n-free) {
		p.dial()
	}
	if free == 0 && n > p.cfg.MaxWaiting && (p.dialling == 0 || p.cfg.MaxWaiting >= 0) {
		p.waiters.Store(int64(n - 1))
		return p.full(n - 1)
	}
	if waited {
		p.queue = slices.Insert(p.queue, 0, waiter{near, token})
	} else {
		p.queue = append(p.queue, waiter{near, token})
	}
	return nil
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

// full is the error of a request for which there is no place. It needs mu.
func (p *Pool) full(waiting int) *upstream.Error {
	return &upstream.Error{
		Reason: upstream.StreamLimit, NextHop: p.cfg.Address, Unsent: true, Unanswered: true,
		Err: fmt.Errorf("%d connections carry all the streams that the endpoint allows, and %d requests wait for a place", len(p.conns), waiting),
	}
}

// enough tells whether the connections that are being made will carry n
// requests, as far as those that are there tell how many one carries. It needs mu.
func (p *Pool) enough(n int) bool {
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

// Cancel implements Opener.
func (p *Pool) Cancel(near Near, token uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = slices.DeleteFunc(p.queue, func(w waiter) bool { return w.token == token && w.near == near })
	p.waiters.Store(int64(len(p.queue)))
}

// Connections is how many are open, whatever they carry.
func (p *Pool) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) + len(p.leaving)
}

// Flush has those who wait ask again, as many as there are places for. Whoever
// then finds none waits on, and has a connection made if there is none to wait for.
func (p *Pool) Flush(t *Turn) {
	p.mu.Lock()
	places := p.places(len(p.queue))
	if places == 0 && p.dialling == 0 {
		// Whoever asks has one made.
		places = 1
	}
	n := min(places, len(p.queue))
	var few [8]waiter
	asked := append(few[:0], p.queue[:n]...)
	p.queue = slices.Delete(p.queue, 0, n)
	if rest := len(p.queue); rest > p.cfg.DialAfter && !p.enough(rest) {
		// The connection that they waited for carries fewer than was hoped.
		p.dial()
	}
	p.waiters.Store(int64(len(p.queue)))
	p.mu.Unlock()
	for _, w := range asked {
		if !w.near.Ready(t, w.token) && p.wanted() {
			// It had gone, so another one may have the place.
			t.Add(p)
		}
	}
}

// CloseIdle closes the connections that carry nothing now.
func (p *Pool) CloseIdle() {
	for _, c := range p.taken() {
		c.quitIfIdle()
	}
}

func (p *Pool) taken() []*Client {
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
		p.failWaiting(&t, p.gone())
		t.End()
		for _, c := range p.taken() {
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
	if p.kill != nil {
		p.kill.Stop()
	}
	p.mu.Unlock()
	p.all.Wait()
}
