package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Discovery is what the proxy asks of discovery.
type Discovery interface {
	// Cluster waits for a cluster until ctx ends; see package discovery for its errors.
	Cluster(ctx context.Context, name string) (*discovery.Cluster, error)
}

// Config is what the handlers share.
type Config struct {
	Discovery Discovery
	Endpoints *endpoints.Set
	Names     Names
	Metrics   *Metrics
	Tracker   *Tracker
	Logger    hclog.Logger
	// AccessLog may be nil.
	AccessLog *AccessLog
	// DiscoveryTimeout bounds the wait for an unknown cluster; 0 is 3 s.
	DiscoveryTimeout time.Duration
	// MaxActive is how many requests may be in flight; those over it are shed with the reason Overload; 0 for no limit.
	MaxActive int
	// MaxRequestBytes bounds the body of a request, a stream's too; 0 for no limit.
	MaxRequestBytes int64
	// Limits may be nil.
	Limits *Limits
	// TCPIdle ends an opaque connection on which nothing moves; 0 is 1 h.
	TCPIdle time.Duration
	// MaxConnectionAge is about how old a client's HTTP connection gets before it is told to go, and
	// MaxConnectionAgeGrace how long what is on it may then take; an age of 0 is no limit.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
}

func (c *Config) discoveryTimeout() time.Duration {
	if c.DiscoveryTimeout <= 0 {
		return 3 * time.Second
	}
	return c.DiscoveryTimeout
}

// known gives the cluster of that name where discovery need not be waited for: then wait is false.
func (c *Config) known(name string) (found *endpoints.Cluster, wait bool, err error) {
	dc, err := c.Discovery.Cluster(noWait, name) //nolint:contextcheck // on purpose: it must not wait
	if errors.Is(err, discovery.ErrDiscoveryPending) || errors.Is(err, context.Canceled) {
		return nil, true, nil
	}
	found, err = c.inEffect(noWait, name, dc, err) //nolint:contextcheck // as above
	return found, false, err
}

// resolve gives the cluster of that name, asking discovery. Its error is an *upstream.Error.
func (c *Config) resolve(ctx context.Context, name string) (*endpoints.Cluster, error) {
	// Mostly it is known, and then a context for waiting would cost for nothing.
	if found, wait, err := c.known(name); !wait { //nolint:contextcheck // it does not wait
		return found, err
	}
	bounded, cancel := context.WithTimeout(ctx, c.discoveryTimeout())
	defer cancel()
	dc, err := c.Discovery.Cluster(bounded, name)
	return c.inEffect(ctx, name, dc, err)
}

// inEffect gives the cluster for what discovery said, within ctx.
func (c *Config) inEffect(ctx context.Context, name string, dc *discovery.Cluster, err error) (*endpoints.Cluster, error) {
	if err == nil {
		if found := c.Endpoints.Cluster(name); found != nil {
			return found, nil
		}
		// It was removed at this very moment.
		err = fmt.Errorf("cluster %s: %w", dc.Name, discovery.ErrUnknownService)
	}
	reason := upstream.DiscoveryPending
	switch {
	case errors.Is(err, discovery.ErrUnknownService):
		reason = upstream.NoSuchService
	case errors.Is(err, discovery.ErrDiscoveryLimit):
		reason = upstream.DiscoveryLimit
	case errors.Is(err, discovery.ErrNeverConnected):
		reason = upstream.NeverReached
	case ctx != noWait && ctx.Err() != nil:
		reason = upstream.EndOf(ctx)
	}
	return nil, &upstream.Error{Reason: reason, Unsent: true, Unanswered: true, Err: err}
}
