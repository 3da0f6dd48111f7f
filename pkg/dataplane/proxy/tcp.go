package proxy

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/capture"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxyproto"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// TCP relays the connections of a listener to one cluster.
type TCP struct {
	Config
	Cluster string
	// ProxyHeader takes a PROXY header (version 2) off each connection first, and refuses those without.
	ProxyHeader bool
}

// Serve accepts until l is closed, and then waits for the connections to end.
// It gives nil after net.ErrClosed.
func (t *TCP) Serve(ctx context.Context, l net.Listener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	return t.accept(ctx, l, func(c net.Conn) {
		wg.Go(func() {
			t.pass(ctx, c, func(ctx context.Context, cancel context.CancelCauseFunc, p *passage) error {
				p.label, p.Cluster = t.Cluster, t.Cluster
				return t.relay(ctx, socketOf(c), cancel, p)
			})
		})
	})
}

// pause waits for d; false where ctx ended before.
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

// passage is an opaque connection on its way, or one of which nobody knows yet.
type passage struct {
	entry
	// label is for the metrics.
	label string
	// handedOver: it carries HTTP, and somebody else serves it.
	handedOver bool
}

// dialled notes a dial.
func (p *passage) dialled(key mesh.EndpointKey, reason upstream.Reason, took time.Duration) {
	p.Attempts = append(p.Attempts, attemptEntry{Endpoint: key.Address.String(), Reason: reason, Took: took.Seconds()})
}

// pass lets relay carry a connection to its end, and counts and logs it. The
// context that relay gets ends with the drain time; relay gives why the
// connection failed, nil if it did not.
func (c *Config) pass(ctx context.Context, conn net.Conn, relay func(context.Context, context.CancelCauseFunc, *passage) error) {
	c.Tracker.begin()
	defer c.Tracker.end()
	defer c.Tracker.hold(conn)()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.Tracker.over, func() { cancel(context.Cause(c.Tracker.over)) })() //nolint:contextcheck // what ends all
	p := &passage{label: unknownCluster, entry: entry{Time: time.Now(), Client: conn.RemoteAddr().String(), Protocol: "tcp"}}
	err := relay(ctx, cancel, p)
	if p.handedOver {
		return
	}
	if err != nil {
		c.Logger.Debug("connection failed", "cluster", p.label, "reason", upstream.ReasonOf(err), "err", err)
	}
	_ = conn.Close()
	p.Reason = upstream.ReasonOf(err)
	c.Metrics.ended(p.label, 0, p.Reason, 0)
	c.Limits.ended(p.Reason)
	if c.AccessLog == nil {
		return
	}
	p.Seconds, p.Time = time.Since(p.Time).Seconds(), p.Time.UTC()
	if err != nil {
		p.Layer, p.Error = p.Reason.Layer(), upstream.AsError(err).Error()
	}
	c.AccessLog.add(&p.entry)
}

// relay gives why the connection failed; nil if it did not. It notes in p what it did.
func (t *TCP) relay(ctx context.Context, client *net.TCPConn, cancel context.CancelCauseFunc, p *passage) error {
	up, err := t.open(ctx, client, cancel, p)
	if err != nil {
		// Opaque TCP has no words: a reset is how a refused connection looks.
		reset(client)
		return err
	}
	defer up.close()
	defer func() { _ = client.Close() }()
	defer up.OnClose(func() { reset(client) })()
	var why *upstream.Error
	p.BytesReceived, p.BytesSent, why = relayConns(up.TCPConn, client, t.tcpIdle())
	return brokenBy(ctx, up.lease, up.hop(), why)
}

// open connects to the cluster.
func (t *TCP) open(ctx context.Context, client *net.TCPConn, cancel context.CancelCauseFunc, p *passage) (*link, error) {
	if e := t.Limits.overloaded(); e != nil {
		return nil, e
	}
	from := proxyproto.Header{Source: capture.AddrPort(client.RemoteAddr()), Destination: capture.AddrPort(client.LocalAddr())}
	if t.ProxyHeader {
		var err error
		if from, err = readProxyHeader(client, from); err != nil {
			return nil, &upstream.Error{Reason: upstream.BadProxyHeader, Unsent: true, Unanswered: true, Err: err}
		}
		p.Client = from.Source.String()
	}
	cluster, err := t.resolve(ctx, t.Cluster)
	if err != nil {
		return nil, err
	}
	return t.dialLink(ctx, cluster, from, cancel, p)
}

// tcpIdle is how long nothing may move on an opaque connection.
func (c *Config) tcpIdle() time.Duration { return cmp.Or(c.TCPIdle, time.Hour) }

// brokenBy tells why an established connection broke off; nil when it ended in
// order. Where we ended it ourselves, why says nothing, and the reason is ours.
// The lease is nil where no cluster leads to hop.
func brokenBy(ctx context.Context, lease *endpoints.Lease, hop netip.AddrPort, why *upstream.Error) error {
	if cause, ok := errors.AsType[*upstream.Error](context.Cause(ctx)); ok {
		return &upstream.Error{Reason: cause.Reason, NextHop: hop, Err: cause.Err}
	}
	if lease != nil && lease.Overdue() {
		return overdue(lease)
	}
	if why == nil {
		return nil
	}
	e := *why
	if e.Reason != upstream.ClientGone {
		e.NextHop = hop
	}
	return &e
}

// overdue is the error of what is still on an endpoint that left.
func overdue(lease *endpoints.Lease) *upstream.Error {
	return &upstream.Error{Reason: upstream.EndpointRemoved, NextHop: lease.Key.Address, Err: errors.New("the endpoint left the service, and its drain time is over")}
}
