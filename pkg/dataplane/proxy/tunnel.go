package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// dialCluster makes an opaque connection to an endpoint, another one when a
// dial fails. The lease must be ended. cancel may be nil; note hears of each dial.
func (c *Config) dialCluster(ctx context.Context, cluster *endpoints.Cluster, hash uint64, cancel context.CancelCauseFunc, note func(mesh.EndpointKey, upstream.Reason, time.Duration)) (*upstream.Raw, *endpoints.Lease, error) {
	var tried []mesh.EndpointKey
	for dials := 1; ; dials++ {
		lease, err := cluster.Acquire(ctx, endpoints.Request{Hash: hash, Tried: tried, Opaque: true, Cancel: cancel})
		if errors.Is(err, endpoints.ErrAllTried) {
			tried = nil
			dials--
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		began := time.Now()
		raw, err := lease.Upstream.Dial(ctx)
		note(lease.Key, upstream.ReasonOf(err), time.Since(began))
		if err == nil {
			lease.Dialed()
			lease.Connected()
			return raw, lease, nil
		}
		reason := upstream.ReasonOf(err)
		lease.DialFailed(reason)
		if dials >= maxDials || !reason.Dial() && reason != upstream.EndpointRemoved {
			return nil, nil, err
		}
		tried = append(tried, lease.Key)
		c.Metrics.retried(cluster.Name(), string(reason))
	}
}

// halfCloser is a connection whose writing side can end alone.
type halfCloser interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// splice copies both ways until both directions have ended. An end of stream
// passes on as a half-close; an error ends both at once. It gives the bytes
// that each side received, and why the tunnel broke off, nil where it did not:
// ClientGone, or the upstream's reset, by whether it had sent anything.
func splice(up, client halfCloser) (toUp, toClient int64, why *upstream.Error) {
	var (
		wg    sync.WaitGroup
		first = breakage{client: client}
	)
	wg.Go(func() { toUp = first.pump(up, client) })
	toClient = first.pump(client, up)
	wg.Wait()
	return toUp, toClient, first.why(toClient)
}

// breakage is the first of what went wrong with a tunnel: what follows is our own doing.
type breakage struct {
	client halfCloser
	once   sync.Once
	// side broke, nil for none; expired: neither did, but nothing moved. Both are set once.
	side    halfCloser
	expired bool
	// err is what was met; set with them.
	err error
	// over is set before anything is reset.
	over atomic.Bool
	// toldUp and toldClient: this side was told of the other's end.
	toldUp, toldClient atomic.Bool
}

func (f *breakage) told(side halfCloser) *atomic.Bool {
	if side == f.client {
		return &f.toldClient
	}
	return &f.toldUp
}

// why is what the tunnel broke off for, without an endpoint; nil when it ended in order.
func (f *breakage) why(toClient int64) *upstream.Error {
	e := &upstream.Error{Reason: upstream.ResetMidBody, Err: f.err}
	switch {
	case f.expired:
		e.Reason = upstream.IdleTimeout
	case f.side == nil:
		return nil
	case f.side == f.client:
		e.Reason = upstream.ClientGone
	case toClient == 0:
		e.Reason = upstream.ResetBeforeHeaders
	}
	return e
}

func (f *breakage) pump(dst, src halfCloser) int64 {
	n, err := io.Copy(dst, src)
	f.ended(dst, src, err)
	return n
}

// ended passes on how the direction from src to dst ended; err is nil at the end of the stream.
func (f *breakage) ended(dst, src halfCloser, err error) {
	// It is asked last whether src was told: one that both sides have ended in order looks dead too, from then on.
	if err == nil && (dead(tcpOf(src)) || f.over.Load()) && !f.told(src).Load() {
		// A reset is reported once. The other direction, which writes there, had
		// the error, and to this one it looks like an end.
		err = syscall.ECONNRESET
		f.once.Do(func() { f.side, f.err = src, err })
	}
	if err != nil {
		f.once.Do(func() { f.side, f.err = brokenOf(dst, src, err), err })
		f.over.Store(true)
		// What one side lost must not look like a clean end to the other.
		reset(dst)
		reset(src)
		return
	}
	f.told(dst).Store(true)
	// It fails where dst is gone altogether, which the other direction finds out.
	_ = dst.CloseWrite()
}

// brokenOf is the side that err came from; nil where we have closed a side ourselves.
func brokenOf(dst, src halfCloser, err error) halfCloser {
	switch {
	case errors.Is(err, net.ErrClosed):
		return nil
	case dead(tcpOf(dst)):
		return dst
	}
	return src
}

// tcpOf is the socket below a side of a tunnel; nil for a stream.
func tcpOf(c halfCloser) *net.TCPConn {
	switch c := c.(type) {
	case *net.TCPConn:
		return c
	case interface{ Socket() *net.TCPConn }:
		return c.Socket()
	}
	return nil
}

func reset(c io.Closer) {
	if l, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}

// resetWhenOver resets a connection when the client's ends, or the cluster closes what
// is established; the function it gives undoes that.
func (x *exchange) resetWhenOver(c io.Closer) func() bool {
	return context.AfterFunc(x.over, func() { reset(c) })
}

// established notes why a tunnel broke off, if it did.
func (x *exchange) established(lease *endpoints.Lease, why *upstream.Error) {
	if e := brokenBy(x.over, lease, lease.Key.Address, why); e != nil {
		x.failed(upstream.AsError(e))
	}
}

// connect makes a tunnel to the cluster that the authority names (RFC 9110 section 9.3.6).
func (x *exchange) connect(ctx context.Context) error {
	raw, lease, err := x.dialCluster(ctx, x.cluster, x.conn.hash, x.cancel, x.dialled)
	if err != nil {
		return err
	}
	defer lease.End(true)
	defer func() { _ = raw.Close() }()
	defer x.Tracker.hold(raw)()
	defer x.resetWhenOver(raw)()
	if err := announce(x.cluster, raw, x.conn.ends); err != nil {
		return err
	}
	client, err := x.via.accept()
	if err != nil {
		return err
	}
	x.status = http.StatusOK
	defer raw.OnClose(func() { reset(client) })()
	x.copy(raw.TCPConn, client, lease)
	return nil
}

// switchProtocols relays an upgrade such as WebSocket (RFC 9110 section 7.8).
func (x *exchange) switchProtocols(lease *endpoints.Lease) error {
	defer lease.End(true)
	up, client, err := x.via.switched()
	if err != nil {
		return err
	}
	defer func() { _ = up.Close() }()
	defer x.Tracker.hold(up)()
	defer x.resetWhenOver(up)()
	x.status = http.StatusSwitchingProtocols
	if x.method == http.MethodConnect {
		// HTTP/2 has another word for it (RFC 8441 section 5).
		x.status = http.StatusOK
	}
	if t, ok := up.(*relay.Tunnel); ok {
		if raw, ok := t.Conn.(*upstream.Raw); ok {
			defer raw.OnClose(func() { reset(client) })()
		}
	}
	x.copy(up, client, lease)
	return nil
}

// unchanged is the error of an endpoint of HTTP/1.1 that has let the upgrade be and answered as if there were none, which
// it may (RFC 9110 section 7.8). To the client, whose extended CONNECT that was, such a status would say that it had been taken on.
func unchanged(lease *endpoints.Lease, status int) error {
	return &upstream.Error{
		Reason: upstream.UpgradeFailed, NextHop: lease.Key.Address, Err: fmt.Errorf("the endpoint answered %d, and did not change protocols", status),
	}
}

// copy copies until both sides have ended.
func (x *exchange) copy(up, client halfCloser, lease *endpoints.Lease) {
	defer func() { _ = client.Close() }()
	defer x.Tracker.hold(client)()
	var why *upstream.Error
	x.received, x.sent, why = splice(up, client)
	if why != nil && why.Reason == upstream.ResetBeforeHeaders && x.upgrade != "" {
		// The change of protocols was an answer.
		why.Reason = upstream.ResetMidBody
	}
	x.established(lease, why)
}
