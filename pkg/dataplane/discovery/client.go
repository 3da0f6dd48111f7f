package discovery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Client is the ADS client. All methods are safe from any goroutine; Run once.
type Client struct {
	// Set once.
	config  Config
	log     hclog.Logger
	metrics *metrics
	loads   *loads
	state   *stateFile // nil when no state is kept
	// slots is cluster name → *slot.
	slots  sync.Map
	inbox  inbox
	events chan event

	// Owned by Run.
	core *core

	connection    atomic.Pointer[Status]
	lastMessageAt atomic.Int64
	running       atomic.Bool
}

// slot is where callers look for one cluster.
type slot struct {
	answer atomic.Pointer[answer]
	// usedAt is in Unix nanoseconds, to the second.
	usedAt atomic.Int64
}

// New checks the configuration, the state directory included, which it makes,
// and registers the metrics; Run does the rest.
func New(config Config) (*Client, error) {
	config.setDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	c := &Client{config: config, log: config.Logger, loads: newLoads(), events: make(chan event, 16)}
	c.inbox.wake = make(chan struct{}, 1)
	c.connection.Store(&Status{Server: config.Servers[0], Since: time.Now()})
	c.core = newCore(limits{
		maxAge: config.MaxAge, idle: idleTimeout, silence: config.SilenceTimeout,
		answer: answerTimeout, disableRefresh: config.DisableRefresh, maxUnknown: config.MaxUnknown,
	}, config.node(), config.Applier, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	var err error
	if c.metrics, err = newMetrics(c, config.Registerer); err != nil {
		return nil, fmt.Errorf("discovery: register metrics: %w", err)
	}
	if config.StateDir != "" {
		c.state = newStateFile(config.StateDir, c.log, c.metrics)
		if err := c.state.check(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Cluster gives the cluster in force, at once when there is one, whatever the
// state of the control plane. Otherwise it subscribes and waits for the answer
// until ctx ends. The error matches ErrUnknownService, or ErrDiscoveryLimit, or
// ErrDiscoveryPending (also at once, where all that came was refused) and ErrNeverConnected.
func (c *Client) Cluster(ctx context.Context, name string) (*Cluster, error) {
	if !usable(name) {
		return nil, fmt.Errorf("cluster %q: %w", name, ErrUnknownService)
	}
	for {
		v := c.slot(name)
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
				return nil, &pendingError{name: name, connection: c.connection.Load(), waited: ctx.Err()}
			}
		}
	}
}

// usable tells whether a name may be subscribed: "*" would be everything (xDS protocol, "Wildcard").
func usable(name string) bool { return name != "" && name != "*" }

func (c *Client) slot(name string) *slot {
	if v, ok := c.slots.Load(name); ok {
		return v.(*slot)
	}
	v := &slot{}
	v.answer.Store(&answer{
		status:  ClusterStatus{Name: name, State: StatePending},
		changed: make(chan struct{}),
	})
	actual, _ := c.slots.LoadOrStore(name, v)
	return actual.(*slot)
}

// use notes the use, without a write for each request.
func (v *slot) use() {
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
