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

// TestFullIsForStreams: some wait for a stream of a connection that is gone by now, and no other may be made: who comes
// then hears why none may, and nothing of streams.
func TestFullIsForStreams(t *testing.T) {
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
		cut := make(chan struct{})
		go func() {
			_, _ = io.ReadFull(far, make([]byte, len(preface)))
			c := &rawConn{far, http2.NewFramer(far, far)}
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
			c.request()
			<-cut
			_ = far.Close()
		}()
		m := &message.Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/"}
		ask := func(ctx context.Context, patient bool, want upstream.Reason) {
			if _, err := p.Ask(ctx, m, patient); upstream.ReasonOf(err) != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		ask(t.Context(), false, upstream.None)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { ask(ctx, true, upstream.BreakerConnections) })
		synctest.Wait()
		ask(t.Context(), false, upstream.StreamLimit)
		close(cut)
		synctest.Wait()
		ask(t.Context(), false, upstream.BreakerConnections)
		cancel()
		wg.Wait()
	})
}
