package chaos

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/testaddr"
)

// protocol is what a peer speaks.
type protocol int

const (
	http1 protocol = iota
	http2c
	opaque
)

// faults are what a peer of a protocol can be given: states, and deeds that it
// then does to most requests.
var faults = map[protocol][]act{
	http1:  {refusing, silent, leaving, halfClosed, held, delayed, dropped, cut, failed, nonsense, switched, killed},
	http2c: {refusing, silent, garbled, leaving, halfClosed, oneStream, held, delayed, dropped, cut, failed, nonsense, refused, goneAway, killed},
	opaque: {refusing, silent, leaving, halfClosed, cut, nonsense, killed},
}

// isState tells whether a fault is one of connections.
func isState(a act) bool {
	switch a { //nolint:exhaustive // all others are deeds
	case refusing, silent, garbled, leaving, halfClosed, oneStream:
		return true
	}
	return false
}

// peer is an endpoint that does wrong what it is told to. Its address is in
// 127.77.0.0/16: nothing that dials gets one of those for its own side, so a
// port can be listened on again and again.
type peer struct {
	t        testing.TB
	ledger   *ledger
	address  string
	protocol protocol
	wg       sync.WaitGroup

	mu       sync.Mutex // guards all below
	listener net.Listener
	conns    map[*net.TCPConn]struct{}
	// fault is "" for none; healed is closed when it is over.
	fault  act
	healed chan struct{}
	over   func()
}

func startPeer(t testing.TB, l *ledger, p protocol, host string) *peer {
	t.Helper()
	e := &peer{t: t, ledger: l, protocol: p, address: host + ":0", conns: map[*net.TCPConn]struct{}{}, over: func() {}, healed: make(chan struct{})}
	e.listen()
	t.Cleanup(func() {
		e.heal()
		e.deafen()
		e.kill()
		e.wg.Wait()
	})
	return e
}

func (e *peer) listen() {
	l, err := testaddr.Listen(context.Background(), e.address)
	if err != nil {
		e.t.Errorf("peer: %v", err)
		return
	}
	e.mu.Lock()
	e.listener, e.address = l, l.Addr().String()
	e.mu.Unlock()
	e.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.wg.Go(func() { e.serve(c.(*net.TCPConn)) })
		}
	})
}

func (e *peer) deafen() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listener != nil {
		_ = e.listener.Close()
		e.listener = nil
	}
}

// kill resets every connection.
func (e *peer) kill() {
	e.ledger.begin(e.address, killed)()
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.conns {
		hangUp(c)
	}
}

func hangUp(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// connections is how many are open.
func (e *peer) connections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// give gives the peer a fault.
func (e *peer) give(a act) {
	e.heal()
	if a == killed {
		e.kill()
		return
	}
	end := func() {}
	if isState(a) {
		end = e.ledger.begin(e.address, a)
	}
	e.mu.Lock()
	e.fault, e.over, e.healed = a, end, make(chan struct{})
	e.mu.Unlock()
	if a == refusing {
		e.deafen()
	}
	if isState(a) {
		// It shows on new connections: so that there are some.
		e.kill()
	}
}

// heal takes the fault away. What a state did to connections ends with them.
func (e *peer) heal() {
	e.mu.Lock()
	was, over, healed := e.fault, e.over, e.healed
	if was != "" {
		close(healed)
	}
	e.fault, e.over = "", func() {}
	e.mu.Unlock()
	if was == refusing {
		e.listen()
	} else if isState(was) {
		e.kill()
	}
	over()
}

// now gives the fault, and what is closed when it is over.
func (e *peer) now() (act, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fault, e.healed
}

// plan is what is to be done to a request, "" for serving it.
func (e *peer) plan() (act, <-chan struct{}) {
	a, healed := e.now()
	if a == "" || isState(a) || rand.IntN(10) < 3 {
		return "", healed
	}
	return a, healed
}

func (e *peer) serve(c *net.TCPConn) {
	e.mu.Lock()
	a := e.fault
	e.conns[c] = struct{}{}
	gone := e.listener == nil
	e.mu.Unlock()
	closed := e.ledger.begin(e.address, open)
	defer func() {
		_ = c.Close()
		e.mu.Lock()
		delete(e.conns, c)
		e.mu.Unlock()
		closed()
	}()
	switch a { //nolint:exhaustive // the others concern requests
	case refusing:
		gone = true
	case silent:
		_, _ = io.Copy(io.Discard, c)
		return
	case leaving:
		return
	case garbled:
		_, _ = io.WriteString(c, "220 mail.example.com ESMTP\r\n")
		_, _ = io.Copy(io.Discard, c)
		return
	case halfClosed:
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		return
	}
	if gone {
		// It was accepted at the very moment in which the process died.
		hangUp(c)
		return
	}
	switch e.protocol {
	case http1:
		e.serveHTTP1(c)
	case http2c:
		(&h2{peer: e, conn: c, limited: a == oneStream}).serve()
	case opaque:
		e.serveOpaque(c)
	}
}

// wait waits for d, or until done is closed.
func wait(done <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// beforeCut is between what is sent of an answer and its end: a reset right
// behind it could overtake it.
const beforeCut = 50 * time.Millisecond
