package http2

import (
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/internal/testwait"
)

// TestSlowClientAtTheEnd: a client that is told to go and takes seconds to read what is in the kernel's buffers, giving windows
// back meanwhile, has all of it. A connection that was closed before would reset it.
func TestSlowClientAtTheEnd(t *testing.T) {
	const size = 256 << 10
	servers := make(chan *Server, 1)
	addr := listen(t, func(ctx context.Context, nc net.Conn) {
		v := NewServer(nc, nil, replies(make([]byte, size)), Config{})
		servers <- v
		if err := v.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	d := net.Dialer{Timeout: time.Minute}
	nc, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	_ = nc.(*net.TCPConn).SetReadBuffer(4 << 10)
	c := &rawConn{nc, http2.NewFramer(nc, nc)}
	_, _ = nc.Write([]byte(preface))
	_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2 * size})
	_ = c.WriteWindowUpdate(0, 2*size)
	_ = c.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, EndHeaders: true, EndStream: true,
		BlockFragment: block(":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/"),
	})
	v := <-servers
	testwait.Until(t, "it is answered", func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.lastID == 1 && len(v.streams) == 0
	})
	v.goAwayNow()
	pace := time.NewTicker(80 * time.Millisecond)
	defer pace.Stop()
	began, n := time.Now(), 0
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("%v after %d bytes and %s", err, n, time.Since(began))
		}
		if f, ok := f.(*http2.DataFrame); ok {
			n += len(f.Data())
			if f.StreamEnded() {
				break
			}
			<-pace.C
			_ = c.WriteWindowUpdate(0, uint32(len(f.Data())))
		}
	}
	if n != size {
		t.Errorf("%d bytes", n)
	}
}

// goAwayNow is GoAway without its first step.
func (v *Server) goAwayNow() {
	v.mu.Lock()
	v.leaving = warned
	v.mu.Unlock()
	v.goNow()
}
