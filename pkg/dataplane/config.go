package dataplane

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Listen is an address that leads to one cluster.
type Listen struct {
	// Address is host:port as net.Listen takes it.
	Address string
	Cluster string
	// HTTP relays HTTP/1.1 and h2c, whatever the authority; otherwise opaque TCP.
	HTTP bool
}

// Config is what New needs. Zero durations and names take the defaults given.
type Config struct {
	// NodeID and XDSAddresses must be set.
	NodeID       mesh.NodeID
	XDSAddresses []string
	// Namespace (default "default") and ClusterDomain (cluster.local) complete short authorities.
	Namespace, ClusterDomain string
	// Pod, KubernetesNode, Region and Zone say where the proxy runs; "" for unknown.
	Pod, KubernetesNode, Region, Zone string
	Version                           string

	// Addresses to listen on; "" for none.
	OutboundAddress, AdminAddress, HealthAddress string
	Listens                                      []Listen
	// StateDir holds the last good configuration; "" keeps none.
	StateDir string

	// DrainTime bounds a drain of the proxy, and of the connections to a removed endpoint (30 s).
	DrainTime time.Duration
	// QuietTime is for how long nothing must have been in flight for a drain to be over (1 s, at most a quarter of DrainTime).
	QuietTime time.Duration
	// DiscoveryMaxAge is how old the control plane's word may become (5 min).
	DiscoveryMaxAge time.Duration
	// SilenceTimeout is how long the control plane may say nothing: its probe interval and 2 s (12 s).
	SilenceTimeout time.Duration
	// MaxUnknown limits the names subscribed that have no service: over it, requests get a 503 with the reason discovery_limit (1,000).
	MaxUnknown int
	// DiscoveryTimeout bounds a request's wait for an unknown cluster (3 s).
	DiscoveryTimeout time.Duration
	// FailFast is how long requests wait for a cluster without usable endpoint (3 s).
	FailFast time.Duration
	// FailFastInbound is the same for requests to the application behind the proxy (1 s).
	FailFastInbound time.Duration
	// MaxActiveRequests is how many requests may be in flight, MaxRequestBytes how long a request's body may be; 0 for no limit.
	MaxActiveRequests int
	MaxRequestBytes   int64
	// MaxConnectionAge is about how old a client's HTTP connection may become (0: no limit), and
	// MaxConnectionAgeGrace what is on it then gets (0: DrainTime).
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
	// AccessLog is a file that gets a JSON line for each request, "-" for standard output; "" for none.
	AccessLog string
	// DisableRefresh switches the way back to the control plane off: for tests that must fail without it.
	DisableRefresh bool

	// Logger may be nil. Registry must be set: metrics are registered in it and served from it.
	Logger   hclog.Logger
	Registry *prometheus.Registry
}

func (c *Config) complete() error {
	switch {
	case c.NodeID == "":
		return errors.New("dataplane: no node id")
	case len(c.XDSAddresses) == 0:
		return errors.New("dataplane: no control plane address")
	case c.Registry == nil:
		return errors.New("dataplane: no metrics registry")
	}
	for _, l := range c.Listens {
		if l.Cluster == "" {
			return fmt.Errorf("dataplane: listen %s: no cluster", l.Address)
		}
	}
	if c.Namespace == "" {
		c.Namespace = "default"
	}
	if c.ClusterDomain == "" {
		c.ClusterDomain = "cluster.local"
	}
	if c.DrainTime <= 0 {
		c.DrainTime = 30 * time.Second
	}
	if c.QuietTime <= 0 {
		c.QuietTime = min(time.Second, c.DrainTime/4)
	}
	if c.MaxConnectionAgeGrace <= 0 {
		c.MaxConnectionAgeGrace = c.DrainTime
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return nil
}
