package http2

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// brittle is a relay whose handler panics at one place, for requests to /bad.
type brittle struct {
	*relayRig
	at     string
	panics atomic.Int64
}

func (b *brittle) fall(at string) {
	if b.at == at {
		panic("a defect put in by the test: " + at)
	}
}

// Request implements Handler.
func (b *brittle) Request(k Ticket, m *message.Request) (Decider, Decision) {
	x, d := b.relayRig.Request(k, m)
	if m.Path != "/bad" {
		return x, d
	}
	b.fall("Request")
	if b.at == "Expired" {
		k.SetDeadline(time.Now().Add(10 * time.Millisecond))
	}
	if b.at == "Resume" {
		d.Later = true
		go k.Resume(func(bool) Decision { b.fall("Resume"); return d })
		return &brittleDecider{x, b}, Decision{Later: true}
	}
	return &brittleDecider{x, b}, d
}

type brittleDecider struct {
	Decider
	b *brittle
}

func (x *brittleDecider) Sent() *upstream.Error {
	x.b.fall("Sent")
	return x.Decider.Sent()
}

func (x *brittleDecider) Response(r *message.Response, end bool) Decision {
	x.b.fall("Response")
	return x.Decider.Response(r, end)
}

func (x *brittleDecider) Trailers(fields []message.Field) Decision {
	x.b.fall("Trailers")
	return x.Decider.Trailers(fields)
}

func (x *brittleDecider) Failed(e *upstream.Error, again bool) Decision {
	x.b.fall("Failed")
	return x.Decider.Failed(e, again)
}

func (x *brittleDecider) Expired() (*upstream.Error, bool) {
	x.b.fall("Expired")
	return x.Decider.Expired()
}

func (x *brittleDecider) Ended(o Outcome) {
	x.Decider.Ended(o)
	x.b.fall("Ended")
}

// outcomes are the reasons with which requests ended.
func (r *relayRig) outcomes() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.ended {
		reason := "none"
		if o.Err != nil {
			reason = string(o.Err.Reason)
		}
		all = append(all, reason)
	}
	return all
}

// TestPanicOfAHandler: a panic in what decides ends the client's connection with all that is on it, and nothing else.
func TestPanicOfAHandler(t *testing.T) {
	for _, at := range []string{"Request", "Sent", "Response", "Trailers", "Failed", "Expired", "Ended", "Resume"} {
		t.Run(at, func(t *testing.T) {
			let := make(chan struct{})
			backend := startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				switch {
				case q.URL.Path == "/hold" || at == "Expired" && q.URL.Path == "/bad":
					select {
					case <-let:
					case <-q.Context().Done():
					}
				case at == "Failed" && q.URL.Path == "/bad":
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Trailer", "Sum")
				_, _ = io.WriteString(w, "fine")
				w.Header().Set("Sum", "1")
			}))
			b := &brittle{relayRig: &relayRig{}, at: at}
			startRelay(t, b.relayRig, backend)
			cfg := Config{Panicked: func(v any, stack []byte) {
				if !strings.Contains(string(stack), "brittle") {
					t.Errorf("the stack does not tell where: %s", stack)
				}
				b.panics.Add(1)
			}}
			var server *Server
			var mu sync.Mutex // guards server
			addr := listen(t, func(ctx context.Context, nc net.Conn) {
				v := NewServer(nc, nil, b, cfg)
				mu.Lock()
				server = v
				mu.Unlock()
				_ = v.Run(ctx)
			})
			get := func(c *http.Client, path string) (string, error) {
				resp, err := c.Get("http://" + addr + path)
				if err != nil {
					return "", err
				}
				defer func() { _ = resp.Body.Close() }()
				text, err := io.ReadAll(resp.Body)
				return string(text), err
			}
			var wg sync.WaitGroup
			other, client := goClient(t), goClient(t)
			wg.Go(func() {
				if text, err := get(other, "/hold"); text != "fine" || err != nil {
					t.Errorf("on another client's connection: %q %v", text, err)
				}
			})
			testwait.Until(t, "another client's request is there", func() bool { return b.pools[0].calls() == 1 })
			wg.Go(func() {
				if text, err := get(client, "/hold"); err == nil {
					t.Errorf("beside the panic: %q", text)
				}
			})
			testwait.Until(t, "the neighbour is there", func() bool { return b.pools[0].calls() == 2 })
			mu.Lock()
			v := server
			mu.Unlock()
			if text, err := get(client, "/bad"); err == nil && at != "Ended" {
				t.Errorf("an answer in spite of it: %q", text)
			}
			testwait.Until(t, "all of that connection has ended", func() bool { return v.active() == 0 && b.pools[0].calls() == 1 })
			if n := b.panics.Load(); n != 1 {
				t.Errorf("%d panics", n)
			}
			if all := b.outcomes(); !strings.Contains(strings.Join(all, " "), string(upstream.Internal)) {
				t.Errorf("outcomes %v", all)
			}
			b.pools[0].Cancel(nil, 0) // its lock is free
			close(let)
			wg.Wait()
			if text, err := get(client, "/"); text != "fine" || err != nil {
				t.Errorf("afterwards: %q %v", text, err)
			}
			if n := b.pools[0].connections(); n != 1 {
				t.Errorf("%d connections to the endpoint", n)
			}
		})
	}
}

// brittleConn panics in what is asked of it once it is broken.
type brittleConn struct {
	net.Conn
	read, write *atomic.Bool
}

func (c *brittleConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.read.Load() {
		panic("a defect put in by the test: read")
	}
	return n, err
}

func (c *brittleConn) Write(p []byte) (int, error) {
	if c.write.Load() {
		panic("a defect put in by the test: write")
	}
	return c.Conn.Write(p)
}

// brittleSocket is the same for a socket that is written to without a goroutine.
type brittleSocket struct{ *brittleConn }

func (c brittleSocket) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.Conn.(syscall.Conn).SyscallConn()
	return brittleRaw{raw, c.brittleConn}, err
}

type brittleRaw struct {
	syscall.RawConn
	c *brittleConn
}

func (r brittleRaw) Read(f func(uintptr) bool) error {
	return r.RawConn.Read(func(fd uintptr) bool {
		done := f(fd)
		if done && r.c.read.Load() {
			panic("a defect put in by the test: raw read")
		}
		return done
	})
}

func (r brittleRaw) Write(f func(uintptr) bool) error {
	if r.c.write.Load() {
		panic("a defect put in by the test: raw write")
	}
	return r.RawConn.Write(f)
}

// TestPanicOfAConnection: a panic in reading or writing, on either side, in a reader or in a goroutine that writes, ends
// that connection; the requests on it fail, and others go on.
func TestPanicOfAConnection(t *testing.T) {
	for _, what := range []string{"client read", "client write", "endpoint read", "endpoint write"} {
		for _, raw := range []bool{false, true} {
			t.Run(what+map[bool]string{true: ", socket"}[raw], func(t *testing.T) {
				client, reads := strings.HasPrefix(what, "client"), strings.HasSuffix(what, "read")
				var read, write atomic.Bool
				brittle := func(nc net.Conn) net.Conn {
					c := &brittleConn{nc, &read, &write}
					if raw {
						return brittleSocket{c}
					}
					return c
				}
				var panics atomic.Int64
				panicked := func(any, []byte) {
					// Only this one.
					read.Store(false)
					write.Store(false)
					panics.Add(1)
				}
				let := make(chan struct{})
				backend := netip.MustParseAddrPort(startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
					if q.URL.Path == "/hold" {
						select {
						case <-let:
						case <-q.Context().Done():
						}
					}
					_, _ = io.WriteString(w, "fine")
				})))
				r := startRelay(t, &relayRig{cfg: Config{Panicked: panicked}})
				dial := dialer(upstream.New(upstream.Config{Address: backend}))
				p := NewPool(PoolConfig{Address: backend, Conn: Config{Panicked: panicked}, Dial: func(ctx context.Context) (net.Conn, error) {
					nc, err := dial(ctx)
					if err != nil || client {
						return nc, err
					}
					return brittle(nc), nil
				}})
				r.pools = append(r.pools, p)
				addr := listen(t, func(ctx context.Context, nc net.Conn) {
					if client {
						nc = brittle(nc)
					}
					r.serve(ctx, nc)
				})
				c := goClient(t)
				get := func(path string) (int, string, error) {
					resp, err := c.Get("http://" + addr + path)
					if err != nil {
						return 0, "", err
					}
					defer func() { _ = resp.Body.Close() }()
					text, err := io.ReadAll(resp.Body)
					return resp.StatusCode, string(text), err
				}
				// Requests that come at once may make a connection each; now all use this one.
				if _, text, err := get("/"); text != "fine" || err != nil {
					t.Fatal(text, err)
				}
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						if code, text, err := get("/hold"); err == nil {
							t.Errorf("on the connection: %d %q", code, text)
						}
					})
				}
				testwait.Until(t, "requests are there", func() bool { return p.calls() == 3 })
				(map[bool]*atomic.Bool{true: &read, false: &write}[reads]).Store(true)
				if code, text, err := get("/next"); err == nil && code == http.StatusOK {
					t.Errorf("over it: %d %q", code, text)
				}
				wg.Wait()
				close(let)
				testwait.Until(t, "nothing is left", func() bool {
					p.mu.Lock()
					defer p.mu.Unlock()
					return p.waiters.Load() == 0 && len(p.leaving) == 0
				})
				if n := panics.Load(); n != 1 {
					t.Errorf("%d panics", n)
				}
				// The answer over which it happened was whole.
				if all := strings.Join(r.outcomes(), " "); strings.Count(all, string(upstream.Internal)) < 3 {
					t.Errorf("ended with %s", all)
				}
				if code, text, err := get("/"); text != "fine" || err != nil {
					t.Errorf("afterwards: %d %q %v", code, text, err)
				}
			})
		}
	}
}

// TestPanicOfADial: a dial that panics is one that failed.
func TestPanicOfADial(t *testing.T) {
	panics := 0
	p := NewPool(PoolConfig{
		Conn: Config{Panicked: func(any, []byte) { panics++ }},
		Dial: func(context.Context) (net.Conn, error) { panic("a defect put in by the test") },
	})
	defer p.Close()
	_, err := p.Ask(t.Context(), &message.Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/"}, true)
	if upstream.ReasonOf(err) != upstream.Internal || panics != 1 {
		t.Errorf("%v, %d panics", err, panics)
	}
}
