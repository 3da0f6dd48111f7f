package mitm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// seen keeps the nonces that arrived at the proxy.
type seen struct {
	mu     sync.Mutex // guards nonces
	nonces []string
}

func observe(t *testing.T, p *Proxy, d Direction) *seen {
	t.Helper()
	var s seen
	t.Cleanup(p.Observe(func(m Message) {
		if m.Direction == d {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.nonces = append(s.nonces, m.Nonce)
		}
	}))
	return &s
}

func (s *seen) has(nonce string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.nonces, nonce)
}

// One stream is silent in both directions, while other streams and PINGs pass.
func TestStallStreams(t *testing.T) {
	r := newRig(t, nil, pinging())
	a, b := r.stream(t, "a"), r.stream(t, "b")
	arrived := observe(t, r.proxy, ToServer)
	undo := r.proxy.StallStreams(ofNode("a"))
	defer undo()
	before := r.received.Load()
	a.ask(t, "1", "2")
	until(t, "at the proxy", func() bool { return arrived.has("2") })
	for i := range 20 {
		b.ask(t, fmt.Sprint(i))
		b.want(t, fmt.Sprint(i))
	}
	passes(t, r.health)
	pings := r.proxy.Stats().Pings[ToClient]
	until(t, "pinged through the stall", func() bool { return r.proxy.Stats().Pings[ToClient] >= pings+2 })
	if n := r.received.Load() - before; n != 20 {
		t.Errorf("the server received %d requests, want the 20 of b", n)
	}
	undo()
	undo() // idempotent
	a.want(t, "1", "2")
	a.ask(t, "3")
	a.want(t, "3")
}

// A stall holds the end of a stream back too, but not its cancellation.
func TestStallEnds(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.stream(t, "a"), r.stream(t, "b")
	undo := r.proxy.StallStreams(func(s Stream) bool { return s.NodeID != "" })
	defer undo()
	if err := a.CloseSend(); err != nil {
		t.Fatal(err)
	}
	b.cancel()
	until(t, "b cancelled", func() bool { return r.ended.Load() == 1 })
	passes(t, r.health)
	if n := r.ended.Load(); n != 1 {
		t.Errorf("%d streams ended, a's end passed", n)
	}
	undo()
	if _, err := a.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
}

// A stalled stream that is full does not stall the others, although they share
// the connection's window.
func TestStallLeavesTheConnection(t *testing.T) {
	var f flood
	r := newRig(t, f.serve)
	undo := r.proxy.StallStreams(func(s Stream) bool { return strings.Contains(s.Method, "Delta") })
	defer undo()
	s := f.start(t, r)
	check(t, r.health)
	undo()
	s.want(t, "0")
	again := r.proxy.StallStreams(func(s Stream) bool { return strings.Contains(s.Method, "Delta") })
	defer again()
	passes(t, r.health)
	again()
	drain(t, s, 1)
}

// The server cannot send on when its window is not renewed, though the client reads.
func TestHoldWindowUpdates(t *testing.T) {
	var f flood
	r := newRig(t, f.serve)
	undo := r.proxy.HoldWindowUpdates(ToServer)
	defer undo()
	s := f.start(t, r)
	read := make(chan error, 1)
	go func() {
		var err error
		for n := 0; err == nil; n++ {
			_, err = s.Recv()
			if errors.Is(err, io.EOF) && n != floodMessages {
				err = fmt.Errorf("%d messages", n)
			}
		}
		read <- err
	}()
	until(t, "an update is held", func() bool { return r.proxy.Stats().HeldUpdates > 0 })
	passes(t, r.direct)
	if n := f.sent.Load(); n == floodMessages {
		t.Error("nothing blocked the server")
	}
	undo()
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
}

// Lost messages cost their sender no window: many times the window can be lost.
func TestSwallow(t *testing.T) {
	for _, d := range []Direction{ToClient, ToServer} {
		t.Run(d.String(), func(t *testing.T) {
			r := newRig(t, nil)
			s := r.stream(t, "a")
			undo := r.proxy.Swallow(withNonce(d, "lost"))
			defer undo()
			large := []string{strings.Repeat("x", 300<<10)}
			for i := range 20 {
				s.send(t, &request{ResponseNonce: "lost", ResourceNamesSubscribe: large})
				s.ask(t, fmt.Sprint(i))
				s.want(t, fmt.Sprint(i))
			}
			if n := r.proxy.Stats().Swallowed; n != 20 {
				t.Errorf("%d swallowed", n)
			}
			undo()
			s.ask(t, "lost")
			s.want(t, "lost")
		})
	}
}

// Every message twice, in order, also when they are larger than the windows; and
// afterwards the flow control is in balance.
func TestDuplicate(t *testing.T) {
	for _, d := range []Direction{ToClient, ToServer} {
		t.Run(d.String(), func(t *testing.T) {
			r := newRig(t, nil)
			s := r.stream(t, "a")
			undo := r.proxy.Duplicate(func(m Message) bool { return m.Direction == d })
			defer undo()
			large := []string{strings.Repeat("x", 200<<10)}
			for i := range 20 {
				n := fmt.Sprint(i)
				s.send(t, &request{ResponseNonce: n, ResourceNamesSubscribe: large})
				s.want(t, n, n)
			}
			undo()
			for i := range 100 {
				s.send(t, &request{ResponseNonce: fmt.Sprint(i), ResourceNamesSubscribe: large})
				s.want(t, fmt.Sprint(i))
			}
		})
	}
}

// A newer message overtakes; the delayed one comes in its time, or at undo.
func TestDelay(t *testing.T) {
	r := newRig(t, nil)
	s := r.stream(t, "a")
	undo := r.proxy.Delay(withNonce(ToClient, "old"), never)
	defer undo()
	s.ask(t, "old", "new", "newer")
	s.want(t, "new", "newer")
	s.ask(t, "newest")
	s.want(t, "newest")
	undo()
	s.want(t, "old")

	defer r.proxy.Delay(withNonce(ToServer, "late"), 200*time.Millisecond)()
	begin := time.Now()
	s.ask(t, "late", "prompt")
	s.want(t, "prompt", "late")
	if d := time.Since(begin); d < 200*time.Millisecond {
		t.Errorf("came after %v", d)
	}
	if s := r.proxy.Stats(); s.Delayed != 2 || s.Lost != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// The end of the stream does not wait for a delayed message.
func TestDelayedPastTheEnd(t *testing.T) {
	r := newRig(t, nil)
	s := r.stream(t, "a")
	undo := r.proxy.Delay(withNonce(ToClient, "old"), never)
	s.ask(t, "old")
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
	undo()
	if n := r.proxy.Stats().Lost; n != 1 {
		t.Errorf("%d lost", n)
	}
}

func TestDelayOthers(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.stream(t, "a"), r.stream(t, "b")
	arrived := observe(t, r.proxy, ToServer)
	undo := r.proxy.DelayOthers(ofNode("a"), never)
	defer undo()
	before := r.received.Load()
	b.ask(t, "b1", "b2")
	until(t, "at the proxy", func() bool { return arrived.has("b2") })
	for i := range 20 {
		a.ask(t, fmt.Sprint(i))
		a.want(t, fmt.Sprint(i))
	}
	if n := r.received.Load() - before; n != 20 {
		t.Errorf("the server received %d requests, want the 20 of a", n)
	}
	undo()
	b.want(t, "b1", "b2")

	defer r.proxy.DelayOthers(ofNode("a"), 100*time.Millisecond)()
	begin := time.Now()
	b.ask(t, "b3", "b4")
	b.want(t, "b3", "b4")
	if d := time.Since(begin); d < 200*time.Millisecond {
		t.Errorf("there and back in %v", d)
	}
}

// Nothing but keepalive notices: the server, which pings, ends its stream; the
// client, which does not, waits on.
func TestHalfOpen(t *testing.T) {
	r := newRig(t, nil, pinging())
	s := r.stream(t, "a")
	undo := r.proxy.HalfOpen()
	defer undo()
	received := make(chan error, 1)
	go func() {
		_, err := s.Recv()
		received <- err
	}()
	s.ask(t, "lost")
	until(t, "ended by keepalive", func() bool { return r.ended.Load() == 1 })
	silent, err := net.Dial("tcp", r.proxy.Addr().String())
	if err != nil {
		t.Fatalf("a new connection: %v", err)
	}
	defer silent.Close()
	undo()
	passes(t, r.direct)
	select {
	case err := <-received:
		t.Errorf("the client noticed: %v", err)
	default:
	}
	if n := r.received.Load(); n != 1 {
		t.Errorf("the server received %d requests, want hello alone", n)
	}
	r.proxy.Cut(true)
	if err := <-received; err == nil {
		t.Error("received something")
	}
	check(t, r.health) // over a new connection
}

// A partition: nothing passes, nothing is lost, also on connections begun meanwhile.
func TestFreeze(t *testing.T) {
	r := newRig(t, nil)
	s := r.stream(t, "a")
	undo := r.proxy.Freeze()
	defer undo()
	s.ask(t, "1", "2", "3")
	fresh := connect(t, r.proxy.Addr().String())
	fresh.Connect()
	until(t, "a second connection", func() bool { return r.proxy.Stats().Open == 2 })
	passes(t, r.direct)
	if n := r.received.Load(); n != 1 {
		t.Errorf("the server received %d requests, want hello alone", n)
	}
	undo()
	s.want(t, "1", "2", "3")
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
}

func TestRefuse(t *testing.T) {
	r := newRig(t, nil)
	s := r.stream(t, "a")
	undo := r.proxy.Refuse()
	defer undo()
	wantRefused(t, r.proxy)
	s.ask(t, "1")
	s.want(t, "1") // the old one lives
	undo()
	check(t, r.health)
}

// wantRefused wants a new connection to be reset; the RST may come before the dial returns.
func wantRefused(t *testing.T, p *Proxy) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr().String())
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a new connection: %v", err)
	}
}

// raw is a target that accepts connections and hands them over.
func raw(t *testing.T) (*Proxy, <-chan net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	})
	p, err := Listen(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		listener.Close()
		wg.Wait()
	})
	return p, accepted
}

func dial(t *testing.T, p *Proxy, accepted <-chan net.Conn) (client, server net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() { client.Close(); server.Close() })
	for _, c := range []net.Conn{client, server} {
		if err := c.SetDeadline(time.Now().Add(soon)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "relayed", func() bool { return p.Stats().Open == 1 })
	return client, server
}

// Cut ends both sides with what it says; an end of one side is passed on as it is.
func TestCutAndClose(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(p *Proxy, client *net.TCPConn)
		want error
	}{
		"cut by FIN":   {func(p *Proxy, _ *net.TCPConn) { p.Cut(false) }, io.EOF},
		"cut by RST":   {func(p *Proxy, _ *net.TCPConn) { p.Cut(true) }, syscall.ECONNRESET},
		"client's FIN": {func(_ *Proxy, client *net.TCPConn) { _ = client.CloseWrite() }, io.EOF},
		"client's RST": {func(_ *Proxy, client *net.TCPConn) { closeReset(client) }, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			p, accepted := raw(t)
			client, server := dial(t, p, accepted)
			c.end(p, client.(*net.TCPConn))
			if _, err := server.Read(make([]byte, 1)); !errors.Is(err, c.want) {
				t.Errorf("server: %v, want %v", err, c.want)
			}
			if _, err := client.Read(make([]byte, 1)); !errors.Is(err, c.want) && !errors.Is(err, net.ErrClosed) {
				t.Errorf("client: %v, want %v", err, c.want)
			}
			if s := p.Stats(); s.Broken != 0 {
				t.Errorf("stats: %+v", s)
			}
		})
	}
}

func TestTargetAway(t *testing.T) {
	p, err := Listen("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	wantRefused(t, p)
	if s := p.Stats(); s.DialFailures != 1 {
		t.Errorf("stats: %+v", s)
	}
}

// Faults come and go at random under load: nothing is lost but by Swallow, and order is kept.
func TestFaultsUnderLoad(t *testing.T) {
	r := newRig(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var rounds atomic.Int32
	for i := range 8 {
		s := r.stream(t, fmt.Sprint("node", i))
		wg.Go(func() {
			body := []string{strings.Repeat("x", 1<<i*500)}
			for n := 0; ctx.Err() == nil; n++ {
				if err := s.Send(&request{ResponseNonce: fmt.Sprint(n), ResourceNamesSubscribe: body}); err != nil {
					t.Errorf("send: %v", err)
					return
				}
				m, err := s.Recv()
				if err != nil || m.GetNonce() != fmt.Sprint(n) {
					t.Errorf("receive %d: %v %v", n, m.GetNonce(), err)
					return
				}
				rounds.Add(1)
			}
		})
	}
	some := ofNode("node1")
	for range 20 {
		undos := []func(){
			r.proxy.StallStreams(some),
			r.proxy.DelayOthers(some, time.Millisecond),
			r.proxy.Freeze(),
			r.proxy.HoldWindowUpdates(ToServer),
			r.proxy.HoldWindowUpdates(ToClient),
			r.proxy.Delay(func(m Message) bool { return some(m.Stream) }, never),
		}
		for _, undo := range undos {
			undo()
		}
		seen := rounds.Load()
		until(t, "going on", func() bool { return rounds.Load() > seen+50 })
	}
	cancel()
	wg.Wait()
}
