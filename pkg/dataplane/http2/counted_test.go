package http2

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// countedQueue takes its time to count.
type countedQueue struct{ dialled chan struct{} }

func (q countedQueue) Join(bool) bool {
	select {
	case <-q.dialled:
	case <-time.NewTimer(time.Second).C:
	}
	return true
}

func (q countedQueue) Leave() {}

// TestCountedBeforeTheDial: who waits is counted before a connection is asked for. Whoever refuses one says when there may
// be one only to those who are counted: one that became free between the two would be for nobody.
func TestCountedBeforeTheDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := countedQueue{make(chan struct{})}
		began := time.Now()
		p := NewPool(PoolConfig{Queue: q, Dial: func(context.Context) (net.Conn, error) {
			close(q.dialled)
			return nil, &upstream.Error{Reason: upstream.BreakerConnections, Unsent: true, Unanswered: true}
		}})
		defer p.Close()
		_, _ = p.Ask(t.Context(), &message.Request{Method: "GET", Scheme: "http", Authority: "a", Path: "/"}, true)
		if time.Since(began) < time.Second {
			t.Error("the connection was asked for first")
		}
	})
}
