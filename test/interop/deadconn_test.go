package interop

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testwait"
)

// wire passes TCP connections on, and can go dead: bytes on the connections of
// that moment are lost in both directions and nobody is told, as when a host
// between the two has lost its power. Later connections pass.
type wire struct {
	listener net.Listener
	to       string
	wg       sync.WaitGroup

	mu    sync.Mutex // guards what follows
	dead  map[*link]bool
	links map[*link]bool
}

// link is one connection with its other half.
type link struct{ a, b net.Conn }

func startWire(t *testing.T, to string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, to: to, dead: make(map[*link]bool), links: make(map[*link]bool)}
	w.wg.Go(w.accept)
	t.Cleanup(func() {
		listener.Close()
		w.mu.Lock()
		for l := range w.links {
			l.a.Close()
			l.b.Close()
		}
		w.mu.Unlock()
		w.wg.Wait()
	})
	return w
}

func (w *wire) accept() {
	for {
		a, err := w.listener.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", w.to)
		if err != nil {
			a.Close()
			continue
		}
		l := &link{a, b}
		w.mu.Lock()
		w.links[l] = true
		w.mu.Unlock()
		w.wg.Go(func() { w.pump(l, a, b) })
		w.wg.Go(func() { w.pump(l, b, a) })
	}
}

// pump copies until an end closes; of a dead link it reads and drops.
func (w *wire) pump(l *link, from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if w.isDead(l) {
			if err != nil {
				return
			}
			continue
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				to.Close()
			}
			return
		}
	}
}

func (w *wire) isDead(l *link) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead[l]
}

// kill makes every connection of now dead, and gives how many those are.
func (w *wire) kill() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.links {
		w.dead[l] = true
	}
	return len(w.dead)
}

// Envoy by itself keeps a half-open connection for ever. With the bootstrap's
// pings it finds another within 10 s (and a part, by chance) and 5 s.
func TestEnvoyLeavesADeadConnection(t *testing.T) {
	t.Parallel()
	one, _ := startEcho(t, "one")
	two, _ := startEcho(t, "two")
	w := newWorld(t, nil)
	w.service("echo", one)
	between := startWire(t, w.address)
	for _, s := range bothEnvoys {
		w.clients = append(w.clients, s(t, between.listener.Addr().String()))
	}
	w.each(t, func(t *testing.T, c client) {
		wantAnswer(t, c, "echo", "one", startTime)
		w.wantFresh(t, c, soon)
	})
	if between.kill() == 0 {
		t.Fatal("nothing to kill")
	}
	w.service("echo", two)
	w.each(t, func(t *testing.T, c client) {
		testwait.Within(t, 20*time.Second, "answered by two", func() bool {
			answer, err := c.call("echo")
			return err == nil && answer == "two"
		})
		w.wantFresh(t, c, soon)
	})
}
