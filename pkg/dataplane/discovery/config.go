package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// UserAgent is the user_agent_name in the node message.
const UserAgent = "freshmesh-dataplane"

// Config is what New needs. Zero durations and counts take the defaults given.
type Config struct {
	// NodeID must be set; it is what the control plane's audit shows.
	NodeID mesh.NodeID
	// Namespace, Pod and KubernetesNode (the node that the pod runs on) become
	// node metadata; may be empty.
	Namespace, Pod, KubernetesNode string
	// Region and Zone become node.locality; may be empty.
	Region, Zone string
	// Version is our own, sent as user_agent_version.
	Version string

	// Servers are addresses of the control plane, "host:port", at least one. The
	// first is tried first; each failure to get an answer goes on to the next.
	Servers []string
	// DialOptions come after our own, which are plaintext, keepalive (10 s, 5 s) and the message limit.
	DialOptions []grpc.DialOption
	// Applier must be set.
	Applier Applier
	// Logger may be nil.
	Logger hclog.Logger
	// Registerer may be nil; then there are no metrics.
	Registerer prometheus.Registerer
	// StateDir holds the last good configuration; "" keeps none. It is created if missing.
	StateDir string

	// MaxAge is how old the control plane's word for a resource may become before it is asked again (5 min).
	MaxAge time.Duration
	// IdleTimeout is how long an unused cluster stays subscribed, unless pinned (1 h).
	IdleTimeout time.Duration
	// SilenceTimeout is how long a stream may bring nothing: the control plane's probe interval and 2 s (12 s).
	SilenceTimeout time.Duration
	// AnswerTimeout is how long a request may stay unanswered, and the pace of the watchdog (2 s).
	AnswerTimeout time.Duration
	// ConnectTimeout bounds the opening of a connection and its stream (5 s).
	ConnectTimeout time.Duration
	// BackoffBase and BackoffMax bound the waits between streams, with full jitter (100 ms, 10 s).
	BackoffBase, BackoffMax time.Duration
	// ReportingInterval is that of load reports where the server names none (10 s).
	ReportingInterval time.Duration
	// MaxMessageBytes limits a message of the control plane (64 MiB).
	MaxMessageBytes int
	// MaxClusters limits the subscriptions, since names come with requests (10,000).
	MaxClusters int
	// DisableRefresh makes Distrust do nothing: for tests that must fail without it.
	DisableRefresh bool
	// Resolve looks up the host names of DNS clusters; nil takes net.DefaultResolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
}

func (c *Config) setDefaults() {
	duration := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	duration(&c.MaxAge, 5*time.Minute)
	duration(&c.IdleTimeout, time.Hour)
	duration(&c.SilenceTimeout, 12*time.Second)
	duration(&c.AnswerTimeout, 2*time.Second)
	duration(&c.ConnectTimeout, 5*time.Second)
	duration(&c.BackoffBase, 100*time.Millisecond)
	duration(&c.BackoffMax, 10*time.Second)
	duration(&c.ReportingInterval, 10*time.Second)
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = 64 << 20
	}
	if c.MaxClusters == 0 {
		c.MaxClusters = 10_000
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Resolve == nil {
		c.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
}

func (c *Config) check() error {
	switch {
	case c.NodeID == "":
		return errors.New("discovery: no node id")
	case len(c.Servers) == 0:
		return errors.New("discovery: no control plane address")
	case c.Applier == nil:
		return errors.New("discovery: no applier")
	}
	for _, d := range []time.Duration{
		c.MaxAge, c.IdleTimeout, c.SilenceTimeout, c.AnswerTimeout,
		c.ConnectTimeout, c.BackoffBase, c.BackoffMax, c.ReportingInterval,
	} {
		if d <= 0 {
			return fmt.Errorf("discovery: duration %v is not above 0", d)
		}
	}
	return nil
}

// node is the node message of both streams (data plane metadata: design, section 3).
func (c *Config) node() *corev3.Node {
	fields := map[string]*structpb.Value{"listeners": structpb.NewStringValue("api")}
	if c.Namespace != "" {
		fields["namespace"] = structpb.NewStringValue(c.Namespace)
	}
	if c.Pod != "" {
		fields["pod"] = structpb.NewStringValue(c.Pod)
	}
	if c.KubernetesNode != "" {
		fields["node"] = structpb.NewStringValue(c.KubernetesNode)
	}
	n := &corev3.Node{
		Id:                   string(c.NodeID),
		Metadata:             &structpb.Struct{Fields: fields},
		UserAgentName:        UserAgent,
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: c.Version},
		ClientFeatures:       []string{"envoy.lrs.supports_send_all_clusters"},
	}
	if c.Region != "" || c.Zone != "" {
		n.Locality = &corev3.Locality{Region: c.Region, Zone: c.Zone}
	}
	return n
}

// backoff is the bound of the wait after a failure that had so many before it;
// callers wait anything up to that (full jitter).
func (c *Config) backoff(before int) time.Duration {
	d := c.BackoffBase << min(before, 20)
	if d <= 0 { // overflow
		return c.BackoffMax
	}
	return min(d, c.BackoffMax)
}
