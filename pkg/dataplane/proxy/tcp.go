package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
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
	return t.accept(ctx, l, func(c *net.TCPConn) { wg.Go(func() { t.serve(ctx, c) }) })
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.Tracker.over, func() { cancel(context.Cause(t.Tracker.over)) })() //nolint:contextcheck // what ends all
	e := &entry{Time: time.Now(), Client: client.RemoteAddr().String(), Protocol: "tcp", Cluster: t.Cluster}
	err := t.relay(ctx, client, cancel, e)
	e.Reason = upstream.ReasonOf(err)
	t.Metrics.ended(t.Cluster, 0, e.Reason, 0)
	if t.AccessLog == nil {
		return
	}
	e.Seconds, e.Time = time.Since(e.Time).Seconds(), e.Time.UTC()
	if err != nil {
		e.Layer, e.Error = e.Reason.Layer(), asError(err).Error()
	}
	t.AccessLog.add(e)
}

// relay gives why the connection failed; nil if it did not. It notes in e what it did.
func (t *TCP) relay(ctx context.Context, client *net.TCPConn, cancel context.CancelCauseFunc, e *entry) error {
	cluster, err := t.resolve(ctx, t.Cluster)
	if err == nil {
		raw, lease, derr := t.dialCluster(ctx, cluster, clientHash(e.Client), cancel, func(key mesh.EndpointKey, reason upstream.Reason, took time.Duration) {
			e.Attempts = append(e.Attempts, attempt{Endpoint: key.Address.String(), Reason: reason, Took: took.Seconds()})
		})
		if derr == nil {
			defer lease.End(true)
			defer func() { _ = raw.Close() }()
			defer context.AfterFunc(ctx, func() { reset(raw) })()
			defer func() { _ = client.Close() }()
			var why upstream.Reason
			e.BytesReceived, e.BytesSent, why = splice(raw.TCPConn, client)
			return brokenBy(ctx, lease, why)
		}
		err = derr
	}
	// Opaque TCP has no words: a reset is how a refused connection looks.
	reset(client)
	t.Logger.Debug("connection failed", "cluster", t.Cluster, "reason", upstream.ReasonOf(err), "err", err)
	return err
}

// brokenBy tells why an established connection broke off; nil when it ended in
// order. Where we ended it ourselves, why says nothing, and the reason is ours.
func brokenBy(ctx context.Context, lease *endpoints.Lease, why upstream.Reason) error {
	if cause, ok := errors.AsType[*upstream.Error](context.Cause(ctx)); ok {
		return &upstream.Error{Reason: cause.Reason, NextHop: lease.Key.Address, Err: cause.Err}
	}
	switch {
	case lease.Overdue():
		return overdue(lease)
	case why == upstream.None:
		return nil
	case why == upstream.ClientGone:
		return &upstream.Error{Reason: why, Err: errors.New("the client's connection broke off")}
	}
	return &upstream.Error{Reason: why, NextHop: lease.Key.Address, Err: errors.New("the endpoint reset the connection")}
}

func overdue(lease *endpoints.Lease) *upstream.Error {
	return &upstream.Error{Reason: upstream.EndpointRemoved, NextHop: lease.Key.Address, Err: errors.New("the endpoint left the service, and its drain time is over")}
}
