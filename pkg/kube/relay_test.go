package kube

import (
	"io"
	"log"
	"net"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/freshmesh/freshmesh/internal/kubetest"
)

// relay passes TCP connections on, until a generation of them goes dead: then
// both ends stay open, and nothing passes.
type relay struct {
	l      net.Listener
	target string
	work   sync.WaitGroup
	// dead is the newest generation that is dead; connections begun later are of the next one.
	dead, next atomic.Int64
	// stillborn is how many more connections are dead from their beginning.
	stillborn atomic.Int64
	// refuse makes every new connection dead at once, too.
	refuse atomic.Bool

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &relay{l: l, target: target}
	r.next.Store(1)
	r.work.Go(r.accept)
	t.Cleanup(func() {
		_ = l.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		r.work.Wait()
	})
	return r
}

// kill makes all connections of now dead, and with all those to come, too.
func (r *relay) kill(all bool) {
	r.refuse.Store(all)
	r.dead.Store(r.next.Add(1) - 1)
}

func (r *relay) accept() {
	for {
		in, err := r.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, in, out)
		r.mu.Unlock()
		generation := r.next.Load()
		if r.refuse.Load() || r.stillborn.Add(-1) >= 0 {
			generation = 0
		}
		r.work.Go(func() { r.pass(in, out, generation) })
		r.work.Go(func() { r.pass(out, in, generation) })
	}
}

func (r *relay) pass(from, to net.Conn, generation int64) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if generation > r.dead.Load() {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
}

// Connections die without a word, and the server is gone for a while.
func TestSilentOutage(t *testing.T) {
	a := kubetest.NewServer(t)
	a.Put(kubetest.Service("a", 80))
	way := newRelay(t, a.Address)
	r := run(t, newSource(t, "http://"+way.l.Addr().String()))
	r.is(true, true, "")
	way.kill(true)
	r.is(true, false, "no answer from "+way.l.Addr().String()+" in time")
	a.Put(kubetest.Service("a", 81))
	way.refuse.Store(false)
	r.is(true, true, "")
	r.holds("Service default/a :81")
}

// The outage ends while the feeds connect anew: some of them, and the probe, do
// so too early and get a dead connection, others get a good one.
func TestSilentOutageEndsWhileConnecting(t *testing.T) {
	for stillborn := int64(1); stillborn < 7; stillborn++ {
		t.Run(strconv.FormatInt(stillborn, 10), func(t *testing.T) {
			t.Parallel()
			a := kubetest.NewServer(t)
			a.Put(kubetest.Service("a", 80), kubetest.Slice("a-1", "a", "10.0.0.1"))
			way := newRelay(t, a.Address)
			r := run(t, newSource(t, "http://"+way.l.Addr().String()))
			r.is(true, true, "")
			way.stillborn.Store(stillborn)
			way.kill(false)
			a.Put(kubetest.Service("a", 81), kubetest.Slice("a-1", "a", "10.0.0.2"), kubetest.Node("n"))
			r.holds("EndpointSlice default/a-1 [10.0.0.2]", "Node n", "Service default/a :81")
		})
	}
}

// Only the connections of now die, and a new one would work. Over HTTP/2 the
// probe shares the connection of the watches, and finds out.
func TestDeadConnection(t *testing.T) {
	a := kubetest.NewServer(t)
	a.Put(kubetest.Service("a", 80))
	secure := httptest.NewUnstartedServer(a)
	secure.EnableHTTP2 = true
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	way := newRelay(t, secure.Listener.Addr().String())
	r := run(t, newSource(t, "https://"+way.l.Addr().String()+", insecure-skip-tls-verify: true"))
	r.is(true, true, "")
	way.kill(false)
	a.Put(kubetest.Service("a", 81))
	r.holds("Service default/a :81")
	r.is(true, true, "")
	r.stop()
	if p := a.Protocol(); p != "HTTP/2.0" {
		t.Errorf("requests came by %s, want HTTP/2.0", p)
	}
}
