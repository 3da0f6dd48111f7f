package http2

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// TestLastMiss: whoever is told why there is no connection hears what came of the last one, and nothing of long ago,
// for which the endpoint would be ejected.
func TestLastMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := make(chan struct{})
		serve := func(far net.Conn, streams uint32, f func(c *rawConn)) {
			_, _ = io.ReadFull(far, make([]byte, len(preface)))
			c := &rawConn{far, http2.NewFramer(far, far)}
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: streams})
			f(c)
			_ = far.Close()
		}
		dials := 0
		p := NewPool(PoolConfig{Dial: func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			switch dials++; dials {
			case 1:
				return nil, &upstream.Error{Reason: upstream.ConnectRefused, Unsent: true, Unanswered: true}
			case 2:
				go serve(far, 1, func(c *rawConn) {
					c.request()
					<-cut
				})
			default:
				go serve(far, 0, func(c *rawConn) { _ = c.WriteGoAway(0, http2.ErrCodeNo, nil) })
			}
			return near, nil
		}})
		defer p.Close()
		m := &message.Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/"}
		ask := func(ctx context.Context, stays bool) error {
			a, err := p.Ask(ctx, m, stays)
			if err == nil {
				defer a.End()
				_, err = a.Head()
			}
			return err
		}
		if err := ask(t.Context(), false); upstream.ReasonOf(err) != upstream.ConnectRefused {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { _ = ask(ctx, false) })
		synctest.Wait()
		// It gets a connection that is of no use, and waits for the next one a while.
		wg.Go(func() { _ = ask(ctx, true) })
		synctest.Wait()
		close(cut)
		synctest.Wait()
		if err := ask(t.Context(), false); upstream.ReasonOf(err) != upstream.ConnectFailed {
			t.Errorf("%v", err)
		}
		cancel()
		wg.Wait()
	})
}
