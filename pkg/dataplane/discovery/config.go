package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	// idleTimeout is how long an unused cluster stays subscribed, unless pinned.
	idleTimeout = time.Hour
	// answerTimeout is how long a request may stay unanswered, and the pace of the watchdog.
	answerTimeout = 2 * time.Second
	// connectTimeout bounds the opening of a connection and its stream; the first
	// attempts have only answerTimeout.
	connectTimeout = 5 * time.Second
	// backoffBase and backoffMax bound the waits between streams.
	backoffBase = 100 * time.Millisecond
	backoffMax  = 10 * time.Second
	// maxMessageBytes limits a message of the control plane.
	maxMessageBytes = 64 << 20
)

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
	// StateDir holds the last good configuration; "" keeps none. It is created if missing;
	// a full disk is borne, a path that cannot be one is an error of New.
	StateDir string

	// MaxAge is how old the control plane's word for a resource may become before it is asked again (5 min).
	MaxAge time.Duration
	// SilenceTimeout is how long a stream may bring nothing: the control plane's probe interval and 2 s (12 s).
	SilenceTimeout time.Duration
	// MaxClusters limits the subscriptions, since names come with requests (10,000).
	MaxClusters int
	// MaxUnknown limits those of them that have nothing in force, whether not
	// answered yet or known not to exist (1,000). Others never give way to them.
	MaxUnknown int
	// DisableRefresh makes Distrust do nothing: for tests that must fail without it.
	DisableRefresh bool
}

func (c *Config) setDefaults() {
	c.MaxAge = cmp.Or(c.MaxAge, 5*time.Minute)
	c.SilenceTimeout = cmp.Or(c.SilenceTimeout, 12*time.Second)
	c.MaxClusters = cmp.Or(c.MaxClusters, 10_000)
	c.MaxUnknown = cmp.Or(c.MaxUnknown, 1000)
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
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
	for _, d := range []time.Duration{c.MaxAge, c.SilenceTimeout} {
		if d <= 0 {
			return fmt.Errorf("discovery: duration %v is not above 0", d)
		}
	}
	return nil
}

// node is the node message of both streams; its metadata makes the view (docs/design/0003-views.md).
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
		UserAgentName:        mesh.DataplaneUserAgent,
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: c.Version},
		ClientFeatures:       []string{"envoy.lrs.supports_send_all_clusters"},
	}
	if c.Region != "" || c.Zone != "" {
		n.Locality = &corev3.Locality{Region: c.Region, Zone: c.Zone}
	}
	return n
}

// backoffAfter is the bound of the wait after a failure that had so many before it;
// callers wait anything up to that (full jitter).
func backoffAfter(before int) time.Duration { return min(backoffBase<<min(before, 16), backoffMax) }
