package http2

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// TestNoLeaveToSend: a client whose connection has no window left, since we hold enough of its bodies, does not pause.
func TestNoLeaveToSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		v := NewServer(near, nil, &undecided{}, Config{ConnWindow: firstWindow, MaxBuffered: 1, BodyTimeout: time.Minute, PingAfter: 10 * time.Hour})
		ended := make(chan error, 1)
		go func() { ended <- v.Run(t.Context()) }()
		c := &rawConn{far, http2.NewFramer(far, far)}
		_, _ = far.Write([]byte(preface))
		_ = c.WriteSettings()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		_ = c.WriteHeaders(http2.HeadersFrameParam{
			StreamID: 1, EndHeaders: true,
			BlockFragment: block(":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/", "content-length", "1000000"),
		})
		// The first frame is given back before we hold anything.
		for left := firstWindow + frameSize; left > 0; left -= frameSize {
			_ = c.WriteData(1, false, make([]byte, min(left, frameSize)))
		}
		time.Sleep(time.Hour) // bubble time
		if n := v.active(); n != 1 {
			t.Errorf("%d requests", n)
		}
		_ = far.Close()
		<-ended
	})
}
