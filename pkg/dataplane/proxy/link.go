package proxy

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/capture"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxyproto"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// link is an opaque connection to an upstream, and what ends it.
type link struct {
	*upstream.Raw
	// lease is nil where no cluster leads there.
	lease *endpoints.Lease
	end   func()
}

// hop is where it leads.
func (l *link) hop() netip.AddrPort { return capture.AddrPort(l.RemoteAddr()) }

func (l *link) close() {
	if l != nil {
		_ = l.Close()
		l.end()
	}
}

// dialTarget makes an opaque connection for a route.
func (c *Config) dialTarget(ctx context.Context, to *route, from netip.AddrPort, cancel context.CancelCauseFunc, p *passage) (*link, error) {
	if to.cluster != nil {
		return c.dialLink(ctx, to.cluster, proxyproto.Header{Source: from, Destination: to.original}, cancel, p)
	}
	pool := upstream.New(upstream.Config{Address: to.original})
	began := time.Now()
	raw, err := pool.Dial(ctx)
	p.dialled(mesh.EndpointKey{Address: to.original}, upstream.ReasonOf(err), time.Since(began))
	if err != nil {
		pool.Close()
		return nil, err
	}
	return newLink(ctx, raw, nil, pool.Close), nil
}

// dialLink makes an opaque connection to a cluster, which hears from whom it is where it asks for that.
func (c *Config) dialLink(ctx context.Context, cluster *endpoints.Cluster, from proxyproto.Header, cancel context.CancelCauseFunc, p *passage) (*link, error) {
	raw, lease, err := c.dialCluster(ctx, cluster, clientHash(from.Source.String()), cancel, p.dialled)
	if err != nil {
		return nil, err
	}
	up := newLink(ctx, raw, lease, func() { lease.End(true) })
	if err := announce(cluster, raw, from); err != nil {
		up.close()
		return nil, err
	}
	return up, nil
}

// newLink makes a link that is reset when ctx ends.
func newLink(ctx context.Context, raw *upstream.Raw, lease *endpoints.Lease, end func()) *link {
	stop := context.AfterFunc(ctx, func() { reset(raw) })
	return &link{raw, lease, func() { stop(); end() }}
}

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
