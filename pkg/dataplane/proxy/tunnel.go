package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

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
		defer t.OnClose(func() { reset(client) })()
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
