package proxy

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// awaited is a connection on which the first request's header is awaited, or not:
// net/http tells of later ones only when they are over.
type awaited struct {
	// since is when the connection was accepted, in Unix nanoseconds; 0 once a request came.
	since atomic.Int64
}

type awaitedKey struct{}

// Watch makes s count the connections that it closes because a header took longer
// than its ReadHeaderTimeout: net/http does that without a word to anybody.
func (l *Limits) Watch(s *http.Server) {
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		a := &awaited{}
		a.since.Store(time.Now().UnixNano())
		l.awaited.Store(c, a)
		return context.WithValue(ConnContext(ctx, c), awaitedKey{}, a)
	}
	s.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateHijacked:
			l.awaited.Delete(c)
		case http.StateClosed:
			a, ok := l.awaited.LoadAndDelete(c)
			if !ok {
				return
			}
			if since := a.(*awaited).since.Load(); since != 0 && time.Since(time.Unix(0, since)) >= s.ReadHeaderTimeout-time.Second/10 {
				l.Count(upstream.HeaderTimeout)
			}
		case http.StateNew, http.StateActive, http.StateIdle:
		}
	}
}

func served(ctx context.Context) {
	if a, ok := ctx.Value(awaitedKey{}).(*awaited); ok {
		a.since.Store(0)
	}
}
