package discovery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
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
	// NodeCluster is node.cluster; may be empty.
	NodeCluster string
	// Namespace, Pod and KubernetesNode (the node that the pod runs on) become
	// node metadata; may be empty.
	Namespace, Pod, KubernetesNode string
	// Region, Zone and SubZone become node.locality; may be empty.
	Region, Zone, SubZone string
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
		Id: string(c.NodeID), Cluster: c.NodeCluster,
		Metadata:             &structpb.Struct{Fields: fields},
		UserAgentName:        UserAgent,
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: c.Version},
		ClientFeatures:       []string{"envoy.lrs.supports_send_all_clusters"},
	}
	if c.Region != "" || c.Zone != "" || c.SubZone != "" {
		n.Locality = &corev3.Locality{Region: c.Region, Zone: c.Zone, SubZone: c.SubZone}
	}
	return n
}

// Client is the ADS client. All methods are safe from any goroutine; Run once.
type Client struct {
	// Set once.
	config  Config
	log     hclog.Logger
	metrics *metrics
	loads   *loads
	// views is cluster name → *view.
	views  sync.Map
	inbox  inbox
	events chan event

	// Owned by Run.
	core *core

	connection    atomic.Pointer[Status]
	lastMessageAt atomic.Int64
	running       atomic.Bool
}

// view is where callers look for one cluster.
type view struct {
	answer atomic.Pointer[answer]
	// usedAt is in Unix nanoseconds, to the second.
	usedAt atomic.Int64
}

// New checks the configuration and registers the metrics; Run does the rest.
func New(config Config) (*Client, error) {
	config.setDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	c := &Client{config: config, log: config.Logger, loads: newLoads(), events: make(chan event, 16)}
	c.inbox.wake = make(chan struct{}, 1)
	c.connection.Store(&Status{Server: config.Servers[0], Since: time.Now()})
	c.core = newCore(limits{
		maxAge: config.MaxAge, idle: config.IdleTimeout, silence: config.SilenceTimeout,
		answer: config.AnswerTimeout, disableRefresh: config.DisableRefresh,
	}, config.node(), config.Applier, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	var err error
	if c.metrics, err = newMetrics(c, config.Registerer); err != nil {
		return nil, fmt.Errorf("discovery: register metrics: %w", err)
	}
	return c, nil
}

// Cluster gives the cluster in force, at once when there is one, whatever the
// state of the control plane. Otherwise it subscribes and waits for the answer
// until ctx ends. The error matches ErrUnknownService, or ErrDiscoveryPending
// (also at once, where all that came was refused) and ErrNeverConnected.
func (c *Client) Cluster(ctx context.Context, name string) (*Cluster, error) {
	if !usable(name) {
		return nil, fmt.Errorf("cluster %q: %w", name, ErrUnknownService)
	}
	for {
		v := c.view(name)
		v.use()
		a := v.answer.Load()
		if a.cluster == nil && a.err == nil {
			c.inbox.subscribe(name, false)
		}
		for !a.dropped || a.err != nil {
			if a.cluster != nil || a.err != nil {
				return a.cluster, a.err
			}
			select {
			case <-a.changed:
				a = v.answer.Load()
			case <-ctx.Done():
				return nil, c.pending(ctx, name)
			}
		}
	}
}

// usable tells whether a name may be subscribed: "*" would be everything (xDS protocol, "Wildcard").
func usable(name string) bool { return name != "" && name != "*" }

func (c *Client) pending(ctx context.Context, name string) error {
	s := c.connection.Load()
	if !s.EverConnected {
		return fmt.Errorf("cluster %s: %w: %w (%w; last error: %s)", name, ErrDiscoveryPending, ErrNeverConnected, ctx.Err(), s.LastError)
	}
	return fmt.Errorf("cluster %s: %w by %s: %w", name, ErrDiscoveryPending, s.Server, ctx.Err())
}

func (c *Client) view(name string) *view {
	if v, ok := c.views.Load(name); ok {
		return v.(*view)
	}
	v := &view{}
	v.answer.Store(&answer{
		status:  ClusterStatus{Name: name, State: StatePending},
		changed: make(chan struct{}),
	})
	actual, _ := c.views.LoadOrStore(name, v)
	return actual.(*view)
}

// use notes the use, without a write for each request.
func (v *view) use() {
	if now := time.Now().UnixNano(); now-v.usedAt.Load() > int64(time.Second) {
		v.usedAt.Store(now)
	}
}

// Subscribe subscribes a cluster for ever, without waiting.
func (c *Client) Subscribe(name string) {
	if usable(name) {
		c.inbox.subscribe(name, true)
	}
}

// Distrust says that endpoints of a cluster turn out dead: the cluster and its
// endpoints are asked for again, and the load report is sent now, at most once a
// second for each cluster. Never blocks.
func (c *Client) Distrust(cluster string) {
	if !c.config.DisableRefresh {
		c.inbox.put(&c.inbox.distrusted, cluster)
	}
}

// Reset forgets what is held for a cluster, "" for all, and asks again. What is
// in force stays in force until answered. Never blocks.
func (c *Client) Reset(cluster string) { c.inbox.put(&c.inbox.reset, cluster) }

// Count adds to the next load report. Never blocks.
func (c *Client) Count(cluster string, key mesh.EndpointKey, l Load) { c.loads.count(cluster, key, l) }

// inbox holds what callers want of the owner, coalesced by name.
type inbox struct {
	// wake has one place: it says that there is something.
	wake chan struct{}

	// mu guards what follows: name → pinned, and sets of names.
	mu         sync.Mutex
	subscribed map[string]bool
	distrusted map[string]bool
	reset      map[string]bool
}

func (i *inbox) subscribe(name string, pinned bool) {
	i.mu.Lock()
	if i.subscribed == nil {
		i.subscribed = map[string]bool{}
	}
	i.subscribed[name] = i.subscribed[name] || pinned
	i.mu.Unlock()
	i.ring()
}

func (i *inbox) put(set *map[string]bool, name string) {
	i.mu.Lock()
	if *set == nil {
		*set = map[string]bool{}
	}
	(*set)[name] = true
	i.mu.Unlock()
	i.ring()
}

func (i *inbox) ring() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// take empties the inbox.
func (i *inbox) take() (subscribed, distrusted, reset map[string]bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	subscribed, distrusted, reset = i.subscribed, i.distrusted, i.reset
	i.subscribed, i.distrusted, i.reset = nil, nil, nil
	return subscribed, distrusted, reset
}
