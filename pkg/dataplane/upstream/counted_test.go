package upstream

import (
	"net"
	"testing"
	"time"
)

// TestUnfinishedWriteCounts: what is being written may have arrived, so a
// request of which it is the first is not unsent.
func TestUnfinishedWriteCounts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dialled, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{TCPConn: dialled.(*net.TCPConn), leave: func() {}}
	done := make(chan int)
	go func() {
		// More than the buffers of both sides hold, and nobody reads.
		n, _ := c.Write(make([]byte, 64<<20))
		done <- n
	}()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for began := time.Now(); c.wrote.Load() == 0; <-ticker.C {
		if time.Since(began) > 10*time.Second {
			t.Error("a write that is under way does not count")
			break
		}
	}
	_ = c.Close()
	if n := <-done; c.wrote.Load() != int64(n) {
		t.Errorf("%d bytes count, %d were written", c.wrote.Load(), n)
	}
}
