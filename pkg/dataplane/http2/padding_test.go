package http2

import (
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// padded sends frames of DATA with nothing but padding.
type padded struct {
	*rawConn
	// window is what the peer may still be sent.
	window int
}

const (
	paddedFrame  = 256
	paddedWindow = 64 << 10
)

// all sends more of them than the stream's window has room for unless it is given back, each as soon as it may.
func (p *padded) all(t *testing.T, id uint32) {
	t.Helper()
	payload := append([]byte{paddedFrame - 1}, make([]byte, paddedFrame-1)...)
	for range 4 * paddedWindow / paddedFrame {
		for p.window < paddedFrame {
			f, err := p.ReadFrame()
			if err != nil {
				t.Error("the window was not given back:", err)
				return
			}
			if w, ok := f.(*http2.WindowUpdateFrame); ok && w.StreamID == id {
				p.window += int(w.Increment)
			}
		}
		p.window -= paddedFrame
		_ = p.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, id, payload)
	}
}

func paddedConfig() Config {
	c := Config{StreamWindow: paddedWindow}
	c.Budgets[EmptyFrames] = Budget{1 << 20, 1}
	return c
}

// TestPaddingOfARequest: frames with padding alone do not use up the stream's window.
func TestPaddingOfARequest(t *testing.T) {
	r := startRelay(t, &relayRig{cfg: paddedConfig()}, startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { _, _ = io.Copy(w, q.Body) })))
	c := dialRaw(t, r.addr)
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/"), EndHeaders: true})
	(&padded{c, paddedWindow}).all(t, 1)
	_ = c.WriteData(1, true, []byte("done"))
	if n := c.whole(t, 1); n != len("done") {
		t.Errorf("%d bytes came back", n)
	}
}

// TestPaddingOfAnAnswer is the same from an endpoint.
func TestPaddingOfAnAnswer(t *testing.T) {
	backend := scripted(t, nil, func(c *rawConn) {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		id := c.request()
		c.respond(id, false, ":status", "200")
		(&padded{c, paddedWindow}).all(t, id)
		_ = c.WriteData(id, true, []byte("done"))
		c.request()
	})
	r := startRelay(t, &relayRig{pool: PoolConfig{Conn: paddedConfig()}}, backend)
	if code, text, _, err := get(t, goClient(t), r.addr); code != 200 || text != "done" || err != nil {
		t.Error(code, text, err)
	}
}
