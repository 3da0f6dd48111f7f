package relay_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// rig is a relay in front of endpoints, which take turns.
type rig struct {
	t       testing.TB
	address string
	pools   []*relay.Pool
	next    atomic.Uint64
	cfg     relay.Config
	cancel  context.CancelFunc

	mu      sync.Mutex // guards all below
	clients map[*relay.Server]struct{}
	errors  []*upstream.Error
}

// start runs a relay until the test ends. Of cfg the handler is its own, unless there is one.
func start(t testing.TB, cfg relay.Config, endpoints ...string) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &rig{t: t, address: l.Addr().String(), cfg: cfg, cancel: cancel, clients: map[*relay.Server]struct{}{}}
	if r.cfg.Handler == nil {
		r.cfg.Handler = r
	}
	for _, e := range endpoints {
		up := upstream.New(upstream.Config{Address: netip.MustParseAddrPort(e)})
		r.pools = append(r.pools, relay.NewPool(relay.PoolConfig{
			Address: netip.MustParseAddrPort(e),
			Dial:    func(ctx context.Context) (net.Conn, error) { return up.Dial(ctx) },
		}))
		t.Cleanup(up.Close)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			c := relay.NewServer(ctx, r.cfg, nc, nil)
			r.mu.Lock()
			r.clients[c] = struct{}{}
			r.mu.Unlock()
			wg.Go(func() {
				c.Serve()
				r.mu.Lock()
				delete(r.clients, c)
				r.mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		cancel()
		r.each(func(c *relay.Server) { _ = c.Close() })
		wg.Wait()
		for _, p := range r.pools {
			p.Close()
		}
	})
	return r
}

func (r *rig) each(f func(*relay.Server)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.clients {
		f(c)
	}
}

// Serve tries each endpoint once.
func (r *rig) Serve(x *relay.Exchange) {
	var last *upstream.Error
	for range r.pools {
		conn, err := r.pools[int(r.next.Add(1))%len(r.pools)].Acquire(x.Context())
		if err == nil {
			resp, serr := x.Send(conn, 0)
			if err = serr; err == nil {
				if resp.Status == http.StatusSwitchingProtocols {
					r.tunnel(x)
					return
				}
				if err = x.Relay(nil); err != nil {
					_ = r.failed(err)
				}
				return
			}
		}
		if last = r.failed(err); !x.Replayable() || last.Reason == upstream.ClientGone || last.Reason == upstream.BadBody {
			break
		}
	}
	_ = x.Respond(last.Reason.Status(), []message.Field{{Name: "x-reason", Value: string(last.Reason)}}, last.Error()+"\n")
}

// send sends a request to the first endpoint.
func (r *rig) send(x *relay.Exchange) error {
	conn, err := r.pools[0].Acquire(x.Context())
	if err == nil {
		_, err = x.Send(conn, 0)
	}
	return err
}

func (r *rig) failed(err error) *upstream.Error {
	e, ok := errors.AsType[*upstream.Error](err)
	if !ok {
		r.t.Errorf("an error that is no *upstream.Error: %v", err)
		return &upstream.Error{Reason: upstream.ProtocolError, Err: err}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, e)
	return e
}

// lastError waits for the first error and gives the last one.
func (r *rig) lastError() *upstream.Error {
	r.t.Helper()
	var e *upstream.Error
	testwait.Until(r.t, "an error", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := len(r.errors); n > 0 {
			e = r.errors[n-1]
		}
		return e != nil
	})
	return e
}

func (r *rig) tunnel(x *relay.Exchange) {
	client, server, err := x.Switch()
	if err != nil {
		_ = r.failed(err)
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.CloseWrite()
	})
	_, _ = io.Copy(client, server)
	_ = client.CloseWrite()
	wg.Wait()
	_ = client.Close()
	_ = server.Close()
}

// backend is an endpoint of net/http.
func backend(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// raw is an endpoint that is written by hand: f has each connection for itself.
func raw(t testing.TB, f func(c *net.TCPConn, r *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				f(c.(*net.TCPConn), bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// canned answers each request with the same bytes, whatever its body.
func canned(t testing.TB, answer string) string {
	t.Helper()
	return raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		for {
			q, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, q.Body); err != nil {
				return
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	})
}

// conn is a client's connection that is written by hand.
type conn struct {
	*net.TCPConn
	t testing.TB
	r *bufio.Reader
}

func (r *rig) dial() *conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	return &conn{c.(*net.TCPConn), r.t, bufio.NewReader(c)}
}

func (c *conn) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.TCPConn, text); err != nil {
		c.t.Fatal(err)
	}
}

// response reads one, its body too.
func (c *conn) response(method string) (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("response: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("body after %q: %v", body, err)
	}
	return resp, string(body)
}

// rest reads to the end of the connection.
func (c *conn) rest() string {
	c.t.Helper()
	b, err := io.ReadAll(c.r)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		c.t.Fatal(err)
	}
	return string(b)
}

// get is a request without a body.
func get(more ...string) string {
	return "GET /x HTTP/1.1\r\nHost: a\r\n" + strings.Join(more, "") + "\r\n"
}

func client(t testing.TB) *http.Client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}
