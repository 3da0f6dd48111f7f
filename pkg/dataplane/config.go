package dataplane

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/dataplane/limit"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxy"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Listen is an address that leads to one cluster.
type Listen struct {
	// Address is host:port as net.Listen takes it.
	Address string
	Cluster string
	// HTTP relays HTTP/1.1 and h2c, whatever the authority; otherwise opaque TCP.
	HTTP bool
	// ProxyHeader: each connection begins with a PROXY header, version 2. Only for opaque TCP.
	ProxyHeader bool
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
	OutboundAddress, InboundAddress, AdminAddress, HealthAddress string
	// Transparent makes the outbound and inbound listeners fit for TPROXY.
	Transparent bool
	// OpaquePorts are destinations whose bytes are not looked at
	// (proxy.DefaultOpaquePorts when nil), SkipPorts those that pass untouched.
	OpaquePorts, SkipPorts []uint16
	// RefuseUnknown refuses captured connections to what the control plane does not know.
	RefuseUnknown bool
	// Limits bound what clients can take.
	Limits  Limits
	Listens []Listen
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
	// Pprof serves Go's profiles on the admin address.
	Pprof bool
	// DisableRefresh switches the way back to the control plane off: for tests that must fail without it.
	DisableRefresh bool

	// Logger may be nil. Registry must be set: metrics are registered in it and served from it.
	Logger   hclog.Logger
	Registry *prometheus.Registry
}

// Limits bound what clients can take; zero values take the defaults given.
type Limits struct {
	// Connections is how many the traffic listeners hold together (10,000).
	Connections int
	// HeaderBytes and HeaderCount bound a request's header (64 KiB, 200).
	HeaderBytes, HeaderCount int
	// HeaderTime bounds the reading of a header (30 s), BodyIdle a pause in a
	// request's body and WriteIdle one in a client's taking of the response (5 min each).
	HeaderTime, BodyIdle, WriteIdle time.Duration
	// TCPIdle ends an opaque connection on which nothing moves (1 h).
	TCPIdle time.Duration
	// Memory in bytes is where new work is shed (four fifths of the control group's limit; none without one).
	Memory uint64
}

func (l *Limits) complete() {
	l.Connections = cmp.Or(l.Connections, 10_000)
	l.HeaderBytes = cmp.Or(l.HeaderBytes, 64<<10)
	l.HeaderCount = cmp.Or(l.HeaderCount, 200)
	l.HeaderTime = cmp.Or(l.HeaderTime, 30*time.Second)
	l.BodyIdle = cmp.Or(l.BodyIdle, 5*time.Minute)
	l.WriteIdle = cmp.Or(l.WriteIdle, 5*time.Minute)
	l.TCPIdle = cmp.Or(l.TCPIdle, time.Hour)
	l.Memory = cmp.Or(l.Memory, limit.DefaultMemory())
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
	c.Limits.complete()
	if c.OpaquePorts == nil {
		c.OpaquePorts = proxy.DefaultOpaquePorts
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
