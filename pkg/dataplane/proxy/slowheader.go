package proxy

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// awaited is a connection on which a request's header is awaited, or not.
type awaited struct {
	// since is when its first byte came, in Unix nanoseconds; 0 while none is awaited.
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
		case http.StateActive:
			if a, ok := l.awaited.Load(c); ok {
				a.(*awaited).since.Store(time.Now().UnixNano())
			}
		case http.StateIdle:
			if a, ok := l.awaited.Load(c); ok {
				a.(*awaited).since.Store(0)
			}
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
		case http.StateNew:
		}
	}
}

func served(ctx context.Context) {
	if a, ok := ctx.Value(awaitedKey{}).(*awaited); ok {
		a.since.Store(0)
	}
}
