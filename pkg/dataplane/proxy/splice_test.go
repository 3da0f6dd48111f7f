package proxy

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// tcpPair is the two ends of a connection.
func tcpPair(t *testing.T) (ours, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dialled, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialled.Close(), accepted.Close() })
	return accepted.(*net.TCPConn), dialled.(*net.TCPConn)
}

// TestTrickleIsNotIdle: bytes that come one by one in one direction keep the
// connection, though no chunk is ever whole and the other direction is silent.
func TestTrickleIsNotIdle(t *testing.T) {
	const idle = 600 * time.Millisecond
	var wg sync.WaitGroup
	for range 16 {
		up, server := tcpPair(t)
		side, client := tcpPair(t)
		ended := make(chan *upstream.Error, 1)
		wg.Go(func() {
			_, _, why := relayConns(up, side, idle)
			ended <- why
		})
		wg.Go(func() { _, _ = io.Copy(io.Discard, client) })
		wg.Go(func() {
			ticker := time.NewTicker(idle / 20)
			defer ticker.Stop()
			for range 60 {
				<-ticker.C
				if _, err := server.Write([]byte("x")); err != nil {
					break
				}
			}
			_, _ = server.CloseWrite(), client.CloseWrite()
			if why := <-ended; why != nil {
				t.Errorf("a connection that moves all the time ended: %v", why)
			}
		})
	}
	wg.Wait()
}

// TestStuckReaderLosesNothing: a client that takes nothing for longer than the
// idle time, and sends meanwhile, gets every byte when it reads again.
func TestStuckReaderLosesNothing(t *testing.T) {
	const idle, words = 2 * time.Second, 8 << 20
	// Before the clock runs: this alone may take longer than the idle time.
	sent := make([]byte, 0, 4*words)
	for i := range uint32(words) {
		sent = binary.BigEndian.AppendUint32(sent, i)
	}
	up, server := tcpPair(t)
	side, client := tcpPair(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if _, _, why := relayConns(up, side, idle); why != nil {
			t.Errorf("ended: %v", why)
		}
	})
	wg.Go(func() { _, _ = io.Copy(io.Discard, server) })
	wg.Go(func() {
		_, _ = server.Write(sent)
		_ = server.CloseWrite()
	})
	ticker := time.NewTicker(idle / 10)
	defer ticker.Stop()
	for range 15 {
		<-ticker.C
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	_ = client.CloseWrite()
	b, err := io.ReadAll(client)
	if err != nil || len(b) != 4*words {
		t.Fatalf("%d bytes of %d, %v", len(b), 4*words, err)
	}
	for i := range uint32(words) {
		if got := binary.BigEndian.Uint32(b[4*i:]); got != i {
			t.Fatalf("word %d is %d", i, got)
		}
	}
}
