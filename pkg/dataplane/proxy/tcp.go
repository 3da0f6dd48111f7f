package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// TCP relays the connections of a listener to one cluster.
type TCP struct {
	Config
	Cluster string
}

// Serve accepts until l is closed, and then waits for the connections to end.
// It gives nil after net.ErrClosed.
func (t *TCP) Serve(ctx context.Context, l net.Listener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			// Out of file descriptors, say: it passes, and closing would make it worse.
			t.Logger.Warn("accept failed", "listener", l.Addr(), "err", err)
			if !pause(ctx, 50*time.Millisecond) {
				return fmt.Errorf("accept on %s: %w", l.Addr(), err)
			}
			continue
		}
		wg.Go(func() { t.serve(ctx, c.(*net.TCPConn)) })
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *TCP) serve(ctx context.Context, client *net.TCPConn) {
	t.Tracker.begin()
	defer t.Tracker.end()
	defer t.Tracker.hold(client)()
	reason := t.relay(ctx, client)
	t.Metrics.ended(t.Cluster, 0, reason, 0)
}

// relay gives the reason for which the connection failed.
func (t *TCP) relay(ctx context.Context, client *net.TCPConn) upstream.Reason {
	cluster, err := t.resolve(ctx, t.Cluster)
	if err == nil {
		var cancel context.CancelCauseFunc
		if cluster.ClosesEstablished() {
			ctx, cancel = context.WithCancelCause(ctx)
			defer cancel(nil)
		}
		raw, lease, derr := t.dialCluster(ctx, cluster, clientHash(client.RemoteAddr().String()), cancel)
		if derr == nil {
			defer lease.End(true)
			defer func() { _ = raw.Close() }()
			if cancel != nil {
				defer context.AfterFunc(ctx, func() { reset(raw) })()
			}
			defer func() { _ = client.Close() }()
			splice(raw.TCPConn, client)
			if cancel != nil && ctx.Err() != nil {
				return upstream.ContextReason(ctx)
			}
			return upstream.None
		}
		err = derr
	}
	// Opaque TCP has no words: a reset is how a refused connection looks.
	reset(client)
	reason := upstream.ReasonOf(err)
	t.Logger.Debug("connection failed", "cluster", t.Cluster, "reason", reason, "err", err)
	return reason
}
