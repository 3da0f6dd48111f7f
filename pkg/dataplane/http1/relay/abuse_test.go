package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// abuses are what clients send that mean no good, by name.
var abuses = map[string]string{
	"never a head":      "GET / HTTP/1.1\r\nHost: a\r\nX: ",
	"many fields":       get(strings.Repeat("X: y\r\n", 10_000)),
	"a long field":      get("X: " + strings.Repeat("y", 200<<10) + "\r\n"),
	"a long target":     "GET /" + strings.Repeat("y", 200<<10),
	"never a line":      strings.Repeat("y", 200<<10),
	"tiny chunks":       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1;"+strings.Repeat("e", 200)+"\r\nx\r\n", 1000),
	"endless trailers":  "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("x: y\r\n", 10_000),
	"never the body":    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nx",
	"never reads":       "GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
	"garbage":           string(bytes.Repeat([]byte{0, 1, 2, 3, 0xff}, 1000)),
	"a flood of errors": "GET  / HTTP/1.1\r\n\r\n",
}

// Clients that abuse the protocol are refused and counted, take no memory to speak of, and their neighbour is served.
func TestAbuse(t *testing.T) {
	var mu sync.Mutex
	refused := map[int]int{}
	r := start(t, relay.Config{
		HeaderTimeout: 300 * time.Millisecond, ReadTimeout: 300 * time.Millisecond, WriteTimeout: 300 * time.Millisecond,
		Refused: func(_ net.Addr, status int, _ *upstream.Error) {
			mu.Lock()
			defer mu.Unlock()
			refused[status]++
		},
	}, backend(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		if q.URL.Path == "/large" {
			_, _ = w.Write(make([]byte, 4<<20))
		}
	}))
	over := make(chan struct{})
	var wg sync.WaitGroup
	var rounds atomic.Int64
	for name, text := range abuses {
		for range 4 {
			wg.Go(func() {
				for {
					select {
					case <-over:
						return
					default:
					}
					c, err := net.Dial("tcp", r.address)
					if err != nil {
						t.Error(err)
						return
					}
					_ = c.SetDeadline(time.Now().Add(patience))
					_, _ = io.WriteString(c, text)
					if name == "never reads" {
						_, _ = io.CopyN(io.Discard, c, 1)
						testwait.Until(t, "it is closed", func() bool {
							_, err := c.Write([]byte("x"))
							return err != nil
						})
					} else {
						_, _ = io.Copy(io.Discard, c)
					}
					_ = c.Close()
					rounds.Add(1)
				}
			})
		}
	}
	victim := client(t)
	for end, n := time.Now().Add(time.Second), 0; time.Now().Before(end) || n < 50 || rounds.Load() < 200; n++ {
		resp, err := victim.Get("http://" + r.address + "/")
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("the neighbour got %v, %v", resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	close(over)
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d abuses; refused by status %v; heap %d MB", rounds.Load(), refused, m.HeapAlloc>>20)
	for _, status := range []int{400, 408, 431} {
		if refused[status] == 0 {
			t.Errorf("nobody was refused with %d", status)
		}
	}
	if m.HeapAlloc > 256<<20 {
		t.Errorf("the heap has %d bytes", m.HeapAlloc)
	}
}

// Abuse keeps its neighbours waiting for nothing. In a bubble the clock stands while anybody has work to do, so
// what a request takes there is what it was kept waiting, whatever the machine does.
func TestAbuseHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const work, pause = 10 * time.Millisecond, 20 * time.Millisecond
		ctx, over := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer over()
		pool := relay.NewPool(relay.PoolConfig{
			Address: netip.MustParseAddrPort("10.0.0.1:80"),
			Dial: func(context.Context) (net.Conn, error) {
				near, far := net.Pipe()
				wg.Go(func() { answerAfter(far, work) })
				return near, nil
			},
		})
		defer pool.Close()
		cfg := relay.Config{
			HeaderTimeout: 300 * time.Millisecond, ReadTimeout: 300 * time.Millisecond, WriteTimeout: 300 * time.Millisecond,
			Handler: handler(func(x *relay.Exchange) {
				conn, err := pool.Acquire(x.Context())
				if err == nil {
					if _, err = x.Send(conn, 0); err == nil {
						err = x.Relay(nil)
					}
				}
				if err != nil {
					_ = x.Respond(502, nil, "")
				}
			}),
		}
		dial := func() net.Conn {
			near, far := net.Pipe()
			wg.Go(relay.NewServer(ctx, cfg, far, nil).Serve)
			return near
		}
		var rounds atomic.Int64
		for name, text := range abuses {
			for range 4 {
				wg.Go(func() {
					for ctx.Err() == nil {
						c := dial()
						if name != "never reads" {
							wg.Go(func() { _, _ = io.Copy(io.Discard, c) })
						}
						for _, err := io.WriteString(c, text); err == nil && ctx.Err() == nil; _, err = io.WriteString(c, "x") {
							time.Sleep(pause) // bubble time
						}
						_ = c.Close()
						rounds.Add(1)
						time.Sleep(pause) // bubble time
					}
				})
			}
		}
		victim := dial()
		defer func() { _ = victim.Close() }()
		r := bufio.NewReader(victim)
		for range 100 {
			began := time.Now()
			if _, err := io.WriteString(victim, get()); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("the neighbour got %v, %v", resp, err)
			}
			if took := time.Since(began); took != work {
				t.Errorf("the neighbour was kept waiting %s longer", took-work)
			}
		}
		if n := rounds.Load(); n < int64(len(abuses)) {
			t.Errorf("only %d abuses meanwhile", n)
		}
	})
}

// answerAfter is an endpoint on one connection that takes so long for each request.
func answerAfter(c net.Conn, work time.Duration) {
	defer func() { _ = c.Close() }()
	for r := bufio.NewReader(c); ; {
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		time.Sleep(work) // bubble time
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
		if q.URL.Path == "/large" {
			answer = "HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n" + strings.Repeat("y", 4_000_000)
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}
