package http2

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/internal/testwait"
)

// TestHeldAnswers: a client that begins to read many long answers and then stops has us hold a small window of each,
// and MaxBuffered more. It holds up neither itself nor others, and has all when it goes on.
func TestHeldAnswers(t *testing.T) {
	const streams, size, most = 200, 2 << 20, 1 << 20
	r := startRelay(t, &relayRig{cfg: Config{MaxBuffered: most}}, startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/small" {
			_, _ = io.WriteString(w, "small")
			return
		}
		_, _ = w.Write(make([]byte, size))
	})))
	c := dialRaw(t, r.addr, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 32 << 10})
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_ = c.WriteWindowUpdate(0, 1<<30)
	for i := range streams {
		_ = c.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), EndHeaders: true, EndStream: true,
			BlockFragment: block(":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/large"),
		})
	}
	// What came with the windows that it gives is read; then it stops.
	for n := 0; n < streams*(32<<10); {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := f.(*http2.DataFrame); ok {
			n += len(d.Data())
		}
	}
	testwait.Until(t, "the answers wait", func() bool { return r.queued() >= streams*(60<<10) })
	victim := goClient(t)
	for range 5 {
		resp, err := victim.Get("http://" + r.addr + "/large")
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if n != size || err != nil {
			t.Fatalf("the victim: %d bytes, %v", n, err)
		}
	}
	if n, bound := r.queued(), most+streams*(64<<10); n > bound {
		t.Errorf("%d bytes are held for the client, more than %d", n, bound)
	}
	next := uint32(2*streams + 1)
	_ = c.WriteHeaders(http2.HeadersFrameParam{
		StreamID: next, EndHeaders: true, EndStream: true,
		BlockFragment: block(":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/small"),
	})
	if n := c.whole(t, next); n != len("small") {
		t.Errorf("its own next answer has %d bytes", n)
	}
	for _, id := range []uint32{1, streams - 1, 2*streams - 1} {
		t.Run(fmt.Sprint(id), func(t *testing.T) {
			_ = c.WriteWindowUpdate(id, size)
			if n := c.whole(t, id); n != size-(32<<10) {
				t.Errorf("%d bytes", n)
			}
		})
	}
	for _, v := range r.all() {
		v.mu.Lock()
		sum := 0
		for _, s := range v.streams {
			sum += s.grown
		}
		if v.grown != sum || sum > most {
			t.Errorf("windows have grown by %d, of which %d are known", sum, v.grown)
		}
		v.mu.Unlock()
	}
}
