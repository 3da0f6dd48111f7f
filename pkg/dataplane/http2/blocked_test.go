package http2

import (
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
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
	waitFor(t, "all have ended", func() bool { return r.active() == 0 })
	v := r.all()[0]
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.blocked); n > all/10 {
		t.Errorf("%d of those that have ended are held", n)
	}
}
