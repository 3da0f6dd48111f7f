package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/proxyproto"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// TCP relays the connections of a listener to one cluster.
type TCP struct {
	Config
	Cluster string
	// ProxyHeader takes a PROXY header (version 2) off each connection first, and refuses those without.
	ProxyHeader bool
	// Idle ends a connection on which nothing moves; 0 is 1 h.
	Idle time.Duration
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
		wg.Go(func() { t.serve(ctx, c) })
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

func (t *TCP) serve(ctx context.Context, conn net.Conn) {
	t.Tracker.begin()
	defer t.Tracker.end()
	defer t.Tracker.hold(conn)()
	defer func() { _ = conn.Close() }()
	reason := upstream.ConnectFailed
	if client, ok := socketOf(conn); ok {
		reason = t.relay(ctx, client)
	}
	t.Metrics.ended(t.Cluster, 0, reason, 0)
}

// relay gives the reason for which the connection failed.
func (t *TCP) relay(ctx context.Context, client *net.TCPConn) upstream.Reason {
	from := proxyproto.Header{Source: addrPortOf(client.RemoteAddr()), Destination: addrPortOf(client.LocalAddr())}
	if t.ProxyHeader {
		var err error
		if from, err = readProxyHeader(client, from); err != nil {
			reset(client)
			t.Logger.Debug("connection refused", "cluster", t.Cluster, "reason", upstream.BadProxyHeader, "err", err)
			return upstream.BadProxyHeader
		}
	}
	cluster, err := t.resolve(ctx, t.Cluster)
	if err == nil {
		var cancel context.CancelCauseFunc
		if cluster.ClosesEstablished() {
			ctx, cancel = context.WithCancelCause(ctx)
			defer cancel(nil)
		}
		raw, lease, derr := t.dialCluster(ctx, cluster, clientHash(from.Source.String()), cancel)
		if derr == nil {
			defer lease.End(true)
			defer func() { _ = raw.Close() }()
			if cancel != nil {
				defer context.AfterFunc(ctx, func() { reset(raw) })()
			}
			defer func() { _ = client.Close() }()
			if err := announce(cluster, raw, from); err != nil {
				reset(client)
				return upstream.ReasonOf(err)
			}
			reason := relayConns(raw.TCPConn, client, cmp.Or(t.Idle, time.Hour))
			if cancel != nil && ctx.Err() != nil {
				return upstream.ContextReason(ctx)
			}
			return reason
		}
		err = derr
	}
	// Opaque TCP has no words: a reset is how a refused connection looks.
	reset(client)
	reason := upstream.ReasonOf(err)
	t.Logger.Debug("connection failed", "cluster", t.Cluster, "reason", reason, "err", err)
	return reason
}
