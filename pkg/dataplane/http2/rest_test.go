package http2

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// TestRestOfARequestIsNotTaken: an endpoint has answered, and neither takes the rest of the request nor says that it will not.
// Nobody waits for that request any more, and its place is another's soon.
func TestRestOfARequestIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		dials := 0
		p := NewPool(PoolConfig{Dial: func(context.Context) (net.Conn, error) {
			if dials++; dials > 1 {
				return nil, &upstream.Error{Reason: upstream.BreakerConnections, Unsent: true, Unanswered: true}
			}
			return near, nil
		}})
		defer p.Close()
		go func() {
			_, _ = io.ReadFull(far, make([]byte, len(preface)))
			c := &rawConn{far, http2.NewFramer(far, far)}
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
			for {
				f, err := c.ReadFrame()
				if err != nil {
					return
				}
				switch f := f.(type) {
				case *http2.PingFrame:
					_ = c.WritePing(true, f.Data)
				case *http2.DataFrame:
					_ = c.WriteWindowUpdate(0, uint32(len(f.Data())))
				case *http2.HeadersFrame:
					c.respond(f.StreamID, true, ":status", "200")
				}
			}
		}()
		ask := func() *Asking {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			a, err := p.Ask(ctx, &message.Request{Method: "POST", Scheme: "http", Authority: "a", Path: "/", Length: -1}, true)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		for range 3 {
			a := ask()
			if err := a.Write(make([]byte, firstWindow+writeAhead)); err != nil {
				t.Error(err)
			}
			_ = a.Finish(nil)
			if status, _, err := receive(a); status != 200 || err != nil {
				t.Error(status, err)
			}
			a.End()
		}
		_ = far.Close()
	})
}
