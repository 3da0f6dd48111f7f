package proxy_test

import (
	"bytes"
	"net"
	"runtime"
	"testing"
)

// lean is an endpoint that answers each head at once and allocates nothing.
func lean(t testing.TB) string {
	t.Helper()
	return acceptor(t, func(c net.Conn) {
		buf := make([]byte, 4096)
		answer := []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	})
}

// steady is a client of the proxy that allocates nothing, before a lean endpoint.
type steady struct {
	conn    net.Conn
	request []byte
	answer  [4096]byte
}

func newSteady(t testing.TB) *steady {
	t.Helper()
	r := newRig(t)
	r.put(lean(t), lean(t), lean(t))
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s := &steady{conn: conn, request: []byte("GET /path HTTP/1.1\r\nHost: echo:8080\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")}
	for range 100 {
		s.get(t)
	}
	return s
}

func (s *steady) get(t testing.TB) {
	t.Helper()
	if _, err := s.conn.Write(s.request); err != nil {
		t.Fatal(err)
	}
	n, err := s.conn.Read(s.answer[:])
	if err != nil || !bytes.HasPrefix(s.answer[:n], []byte("HTTP/1.1 200 ")) {
		t.Fatalf("%q, %v", s.answer[:n], err)
	}
}

// A request over HTTP/1.1 leaves no garbage, with balancing and statistics.
func TestNoAllocations(t *testing.T) {
	s := newSteady(t)
	leavesNoGarbage(t, func() { s.get(t) })
}

// leavesNoGarbage wants a request that is made again and again to allocate nothing, but for what timers do beside it.
func leavesNoGarbage(t *testing.T, do func()) {
	t.Helper()
	const n = 2000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		do()
	}
	runtime.ReadMemStats(&after)
	if per := float64(after.Mallocs-before.Mallocs) / n; per > 0.2 && !raced {
		t.Errorf("%.2f allocations a request", per)
	}
}

// BenchmarkExchange relays a small GET between a client and endpoints that allocate nothing: what is counted is the proxy's.
func BenchmarkExchange(b *testing.B) {
	s := newSteady(b)
	b.ReportAllocs()
	for b.Loop() {
		s.get(b)
	}
}
