package http2

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// TestBlockedAndReset: a client that lets nothing through, and resets each answer as it begins, has us hold nothing of those.
func TestBlockedAndReset(t *testing.T) {
	const all = 5000
	r := startRelay(t, &relayRig{}, startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		n := 10
		if q.URL.Path == "/window" {
			n = firstWindow
		}
		_, _ = w.Write(make([]byte, n))
	})))
	c := dialRaw(t, r.addr, http2.Setting{ID: http2.SettingInitialWindowSize, Val: firstWindow})
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	get := func(id uint32, path string) {
		_ = c.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, EndHeaders: true, EndStream: true,
			BlockFragment: block(":method", "GET", ":scheme", "http", ":authority", "a", ":path", path),
		})
	}
	get(1, "/window")
	if n := c.whole(t, 1); n != firstWindow {
		t.Fatalf("%d bytes", n)
	}
	for i := range uint32(all) {
		id := 2*i + 3
		get(id, "/")
		for answered := false; !answered; {
			f, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			h, ok := f.(*http2.HeadersFrame)
			answered = ok && h.StreamID == id
		}
		_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	testwait.Until(t, "all have ended", func() bool { return r.active() == 0 })
	v := r.all()[0]
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.blocked); n > all/10 {
		t.Errorf("%d of those that have ended are held", n)
	}
}

// sized answers /N with N bytes, and nothing else.
type sized struct{}

func (sized) Request(k Ticket, m *message.Request) (Decider, Decision) {
	x := &rigDecider{rig: &relayRig{}}
	if n, err := strconv.Atoi(m.Path[1:]); err == nil {
		return x, Decision{Reply: &Reply{Status: 200, Body: string(make([]byte, n))}}
	}
	return x, Decision{Later: true}
}

// TestNobodyIsBlocked: a connection whose window is closed, and on which nothing waits for it, has not stalled.
func TestNobodyIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		v := NewServer(near, nil, sized{}, Config{PingAfter: time.Hour})
		ended := make(chan error, 1)
		go func() { ended <- v.Run(t.Context()) }()
		c := &rawConn{far, http2.NewFramer(far, far)}
		_, _ = far.Write([]byte(preface))
		_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		go func() { _, _ = io.Copy(io.Discard, far) }()
		for i, path := range []string{"/waits", "/100000"} {
			_ = c.WriteHeaders(http2.HeadersFrameParam{
				StreamID: uint32(2*i + 1), EndHeaders: true, EndStream: true,
				BlockFragment: block(":method", "GET", ":scheme", "http", ":authority", "a", ":path", path),
			})
		}
		synctest.Wait()
		_ = c.WriteRSTStream(3, http2.ErrCodeCancel)
		time.Sleep(10 * time.Minute) // bubble time
		if n := v.active(); n != 1 {
			t.Errorf("%d requests", n)
		}
		_ = far.Close()
		<-ended
	})
}
