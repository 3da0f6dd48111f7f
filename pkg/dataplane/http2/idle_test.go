package http2

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// TestUsedConnectionIsNotIdle: requests that come and go between two looks at their connection keep it all the same.
func TestUsedConnectionIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		v := NewServer(near, nil, replies("here"), Config{IdleTimeout: time.Minute, PingAfter: time.Hour})
		ended := make(chan error, 1)
		go func() { ended <- v.Run(t.Context()) }()
		c := &rawConn{far, http2.NewFramer(far, far)}
		_, _ = far.Write([]byte(preface))
		_ = c.WriteSettings()
		for i := range uint32(100) {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, EndHeaders: true, EndStream: true, BlockFragment: getBlock()})
			if n := c.whole(t, 2*i+1); n != len("here") {
				t.Fatalf("request %d: %d bytes", i, n)
			}
			time.Sleep(3 * time.Second) // bubble time
		}
		go func() { _, _ = io.Copy(io.Discard, far) }()
		began := time.Now()
		<-ended
		if d := time.Since(began); d < 50*time.Second || d > 80*time.Second {
			t.Errorf("unused, it ended after %s", d)
		}
		_ = far.Close()
	})
}

// undecided leaves every request waiting.
type undecided struct{ asked int }

func (h *undecided) Request(Ticket, *message.Request) (Decider, Decision) {
	h.asked++
	return &rigDecider{rig: &relayRig{}}, Decision{Later: true}
}

// TestRequestAsItGetsIdle: a request that comes when its connection has been found idle, and has not been told so yet, is
// not one of those that the GOAWAY names: its client sends it elsewhere.
func TestRequestAsItGetsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		h := &undecided{}
		v := NewServer(near, nil, h, Config{})
		ended := make(chan error, 1)
		go func() { ended <- v.Run(t.Context()) }()
		c := &rawConn{far, http2.NewFramer(far, far)}
		last := make(chan uint32, 1)
		go func() {
			for {
				f, err := c.ReadFrame()
				if err != nil {
					return
				}
				if f, ok := f.(*http2.GoAwayFrame); ok {
					last <- f.LastStreamID
				}
			}
		}()
		_, _ = far.Write([]byte(preface))
		_ = c.WriteSettings()
		synctest.Wait()
		v.mu.Lock()
		v.idleFor = v.cfg.IdleTimeout
		v.mu.Unlock()
		var turn Turn
		err := v.look(&turn)
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: getBlock()})
		synctest.Wait()
		v.hangUp(&turn, err)
		if n := <-last; n != 0 || h.asked != 0 {
			t.Errorf("the GOAWAY names %d, and %d requests were taken", n, h.asked)
		}
		_ = far.Close()
		<-ended
	})
}
