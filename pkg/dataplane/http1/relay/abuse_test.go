package relay_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
)

// Clients that abuse the protocol are refused and counted, take no memory to speak of, and their neighbour is served.
func TestAbuse(t *testing.T) {
	var mu sync.Mutex
	refused := map[int]int{}
	r := start(t, relay.Config{
		HeaderTimeout: 300 * time.Millisecond, ReadTimeout: 300 * time.Millisecond, WriteTimeout: 300 * time.Millisecond,
		Refused: func(_ net.Addr, e *http1.Error) {
			mu.Lock()
			defer mu.Unlock()
			refused[e.Status]++
		},
	}, backend(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		if q.URL.Path == "/large" {
			_, _ = w.Write(make([]byte, 4<<20))
		}
	}))
	abuses := map[string]string{
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
						until(t, "it is closed", func() bool {
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
	var took []time.Duration
	for end := time.Now().Add(time.Second); time.Now().Before(end) || len(took) < 50; {
		began := time.Now()
		resp, err := victim.Get("http://" + r.address + "/")
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("the neighbour got %v, %v", resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		took = append(took, time.Since(began))
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	close(over)
	wg.Wait()
	slices.Sort(took)
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d abuses; the neighbour's p50 %s, p99 %s; refused by status %v; heap %d MB", rounds.Load(), took[len(took)/2], took[len(took)*99/100], refused, m.HeapAlloc>>20)
	// A loaded machine is slow by itself; that it hangs on a neighbour would be seconds.
	if p99 := took[len(took)*99/100]; p99 > 2*time.Second {
		t.Errorf("the neighbour's p99 is %s", p99)
	}
	for _, status := range []int{400, 408, 431} {
		if refused[status] == 0 {
			t.Errorf("nobody was refused with %d", status)
		}
	}
	if m.HeapAlloc > 256<<20 {
		t.Errorf("the heap has %d bytes", m.HeapAlloc)
	}
}
