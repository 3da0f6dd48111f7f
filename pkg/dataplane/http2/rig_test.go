package http2

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// relayRig is a proxy on real sockets: a listener whose connections are Servers, and Pools.
type relayRig struct {
	addr string
	// pools are taken in turn.
	pools []*Pool
	next  atomic.Uint64
	cfg   Config

	// pool is what the pools are made of, but for their address.
	pool PoolConfig
	// gate limits their connections; nil for no limit.
	gate upstream.Gate
	// patient: requests wait for a place.
	patient bool
	// attempts is how many endpoints a request may go to; 0 is one.
	attempts int
	timeout  time.Duration
	// handler decides in its place; nil for none.
	handler Handler

	mu      sync.Mutex // guards all below
	servers map[*Server]struct{}
	abuses  map[Abuse]int
	ended   []Outcome
	errs    []error
}

// startRelay proxies to the backends until the test ends.
func startRelay(t testing.TB, r *relayRig, backends ...string) *relayRig {
	t.Helper()
	r.servers, r.abuses = map[*Server]struct{}{}, map[Abuse]int{}
	r.cfg.Abused = func(a Abuse) {
		r.mu.Lock()
		r.abuses[a]++
		r.mu.Unlock()
	}
	for _, b := range backends {
		pc := r.pool
		pc.Address = netip.MustParseAddrPort(b)
		pc.Dial = dialer(upstream.New(upstream.Config{Address: pc.Address, Gate: r.gate}))
		r.pools = append(r.pools, NewPool(pc))
	}
	t.Cleanup(func() {
		for _, p := range r.pools {
			p.Close()
		}
	})
	r.addr = listen(t, r.serve)
	return r
}

// startHandler serves with h alone.
func startHandler(t testing.TB, h Handler) string {
	t.Helper()
	return listen(t, func(ctx context.Context, nc net.Conn) { _ = NewServer(nc, nil, h, Config{}).Run(ctx) })
}

// listen gives each connection to serve in a goroutine, until the test ends.
func listen(t testing.TB, serve func(ctx context.Context, nc net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(ctx, nc) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		cancel()
		wg.Wait()
	})
	return l.Addr().String()
}

func (r *relayRig) serve(ctx context.Context, nc net.Conn) {
	v := NewServer(nc, nil, r, r.cfg)
	r.mu.Lock()
	r.servers[v] = struct{}{}
	r.mu.Unlock()
	err := v.Run(ctx)
	r.mu.Lock()
	delete(r.servers, v)
	r.errs = append(r.errs, err)
	r.mu.Unlock()
}

// all are the servers. Their locks come before the rig's, which Ended takes.
func (r *relayRig) all() []*Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.servers))
}

func (r *relayRig) abused(a Abuse) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.abuses[a]
}

func (r *relayRig) pick() Opener {
	p := r.pools[r.next.Add(1)%uint64(len(r.pools))]
	if r.patient {
		return p.Patient()
	}
	return p
}

// Request implements Handler.
func (r *relayRig) Request(k Ticket, m *message.Request) (Decider, Decision) {
	if r.handler != nil {
		return r.handler.Request(k, m)
	}
	for _, f := range m.Fields {
		// gRPC's unit n is that of Go with an s.
		if f.Name == "grpc-timeout" {
			if d, err := time.ParseDuration(f.Value + "s"); err == nil {
				k.SetDeadline(time.Now().Add(d))
			}
		}
	}
	if r.timeout > 0 {
		k.SetDeadline(time.Now().Add(r.timeout))
	}
	return &rigDecider{rig: r}, Decision{To: r.pick()}
}

type rigDecider struct {
	rig   *relayRig
	tries int
}

func (x *rigDecider) Sent() *upstream.Error { return nil }

func (x *rigDecider) Response(*message.Response, bool) Decision { return Decision{} }

func (x *rigDecider) Trailers([]message.Field) Decision { return Decision{} }

func (x *rigDecider) Failed(e *upstream.Error, again bool) Decision {
	if x.tries++; again && (e.Unsent || e.Unanswered) && x.tries < x.rig.attempts {
		return Decision{To: x.rig.pick()}
	}
	return Decision{}
}

func (x *rigDecider) Expired() (*upstream.Error, bool) {
	return &upstream.Error{Reason: upstream.Deadline}, false
}

func (x *rigDecider) Ended(o Outcome) {
	x.rig.mu.Lock()
	x.rig.ended = append(x.rig.ended, o)
	x.rig.mu.Unlock()
}

// startBackend serves h by Go's own HTTP/2 server, without TLS.
func startBackend(t testing.TB, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: h, Protocols: &protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 250}}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		_ = s.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// goClient is Go's own HTTP/2 client, without TLS.
func goClient(t testing.TB) *http.Client {
	t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &protocols, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// rawConn is a client that says what a test wants.
type rawConn struct {
	net.Conn
	*http2.Framer
}

// dialRaw connects and greets.
func dialRaw(t testing.TB, addr string, settings ...http2.Setting) *rawConn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if _, err := nc.Write([]byte(preface)); err != nil {
		t.Fatal(err)
	}
	c := &rawConn{nc, http2.NewFramer(nc, nc)}
	c.AllowIllegalWrites = true
	if err := c.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return c
}

// whole reads until the stream's end, and gives how much body came.
func (c *rawConn) whole(t *testing.T, id uint32) (n int) {
	t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("stream %d after %d bytes: %v", id, n, err)
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			if f.StreamID != id {
				continue
			}
			if n += len(f.Data()); f.StreamEnded() {
				return n
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				t.Fatalf("stream %d was reset: %s", id, f.ErrCode)
			}
		}
	}
}

// connections is how many are open, whatever they carry.
func (p *Pool) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) + len(p.leaving)
}

// active is how many streams are open.
func (v *Server) active() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.streams)
}
