package http2

import (
	"net"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/net/http2"
)

// TestAnswerBeforeTheBody: an answer of ours comes before the request's body. A client that has little left to send may
// finish, since a reset can hide the answer from it; one that has much is told to stop. The connection stays as it was.
func TestAnswerBeforeTheBody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		length int
		stop   bool
	}{
		"little":       {length: 1},
		"just so":      {length: smallRest},
		"much":         {length: smallRest + 1, stop: true},
		"nobody knows": {length: -1, stop: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := dialRaw(t, serve(t, replies("no")))
			fields := []string{":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/"}
			if c.length >= 0 {
				fields = append(fields, "content-length", strconv.Itoa(c.length))
			}
			_ = raw.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: block(fields...)})
			stopped := raw.ends(t, 1)
			if !c.stop {
				for left := c.length; left > 0; left -= frameSize {
					_ = raw.WriteData(1, left <= frameSize, make([]byte, min(left, frameSize)))
				}
			}
			_ = raw.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 3, EndHeaders: true, EndStream: true,
				BlockFragment: block(":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/"),
			})
			if stopped = raw.ends(t, 3) || stopped; stopped != c.stop {
				t.Errorf("told to stop: %t, want %t", stopped, c.stop)
			}
		})
	}
}

// serve has a Server answer one connection by h.
func serve(t *testing.T, h Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if nc, err := l.Accept(); err == nil {
			_ = NewServer(nc, nil, h, Config{}).Run(t.Context())
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// ends reads until the answer on a stream ends, and tells whether a stream was reset with NO_ERROR meanwhile.
func (c *rawConn) ends(t *testing.T, id uint32) (stopped bool) {
	t.Helper()
	over := false
	for !over {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			over = f.StreamID == id && f.StreamEnded()
		case *http2.RSTStreamFrame:
			if f.ErrCode != http2.ErrCodeNo {
				t.Fatalf("stream %d was reset: %s", f.StreamID, f.ErrCode)
			}
			stopped = true
		}
	}
	return stopped
}
