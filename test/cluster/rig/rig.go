// Package rig puts a whole cluster together for tests and for developers: the
// control plane, its DNS, and nodes that run pods.
//
//	func TestMain(m *testing.M) { os.Exit(rig.Main(m, nil)) }
//	…
//	r, err := rig.Start(ctx, rig.Config{Nodes: 3})
//
// Concurrency: Start and Close belong to one goroutine; what a Rig holds has its own rules.
package rig

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/freshmesh/freshmesh/test/cluster"
	"github.com/freshmesh/freshmesh/test/cluster/build"
	"github.com/freshmesh/freshmesh/test/cluster/dns"
	"github.com/freshmesh/freshmesh/test/cluster/kubelet"
	"github.com/freshmesh/freshmesh/test/cluster/sandbox"
)

// Config is what Start needs. Zero values take the defaults given.
type Config struct {
	// Nodes is how many there are (3). Node I is node-I, at 172.30.0.I, in the zone
	// zone-a, zone-b or zone-c in turn, of the region region-1.
	Nodes int
	// Programs are those that were built (what Main built).
	Programs build.Programs
	// Images stand for more container images, by the last part of their names without the tag.
	Images map[string]kubelet.Image
	// NodeGrace and EvictAfter are as in cluster.Config (20 s and 2 s): on a loaded machine a node
	// that is alive may be late.
	NodeGrace, EvictAfter time.Duration
	// BackOff is the pause before a container's second restart (1 s).
	BackOff time.Duration
	// Dir keeps everything (a temporary directory, removed by Close).
	Dir string
	// Logger gets what the nodes have to say; may be nil.
	Logger hclog.Logger
}

// Rig is a running cluster.
type Rig struct {
	*cluster.Cluster
	DNS     *dns.Server
	Nodes   []*kubelet.Kubelet
	Network *sandbox.Network
	// Programs are those that were built.
	Programs build.Programs
	// Dir has the logs: pods/UID/CONTAINER.log, and those of the control plane.
	Dir string

	stop      context.CancelFunc
	group     *errgroup.Group
	temporary bool
}

// Start starts a cluster; there is one to a sandbox. On an error nothing is left running.
func Start(ctx context.Context, c Config) (*Rig, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	r := &Rig{Dir: c.Dir, Programs: c.Programs}
	if r.Dir == "" {
		dir, err := os.MkdirTemp("", "cluster-")
		if err != nil {
			return nil, err
		}
		r.Dir, r.temporary = dir, true
		// Containers that are not root pass through it.
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // see above
			return nil, err
		}
	}
	var err error
	if r.Network, err = sandbox.NewNetwork(); err != nil {
		return nil, err
	}
	control := filepath.Join(r.Dir, "control-plane")
	if err := os.MkdirAll(control, 0o700); err != nil {
		return nil, err
	}
	if r.Cluster, err = cluster.Start(ctx, cluster.Config{
		Programs: c.Programs, Dir: control, NodeGrace: c.NodeGrace, EvictAfter: c.EvictAfter,
	}); err != nil {
		return nil, err
	}
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.group, ctx = errgroup.WithContext(ctx)
	r.DNS = dns.New(r.Admin, sandbox.DNSService)
	r.group.Go(func() error { return r.DNS.Run(ctx) })
	for number := 1; number <= c.Nodes; number++ {
		node, err := r.node(c, number)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.Nodes = append(r.Nodes, node)
		r.group.Go(func() error { return node.Run(ctx) })
	}
	return r, nil
}

func (c *Config) complete() error {
	if c.Nodes == 0 {
		c.Nodes = 3
	}
	if c.Programs == (build.Programs{}) {
		c.Programs = build.Programs{Kubernetes: os.Getenv(kubernetesDir), Own: os.Getenv(ownDir)}
	}
	if c.Programs.Own == "" {
		return errors.New("rig: the programs have not been built: TestMain must call Main")
	}
	if c.NodeGrace == 0 {
		c.NodeGrace = 20 * time.Second
	}
	if c.EvictAfter == 0 {
		c.EvictAfter = 2 * time.Second
	}
	if c.BackOff == 0 {
		c.BackOff = time.Second
	}
	return nil
}

// node makes node number N.
func (r *Rig) node(c Config, number int) (*kubelet.Kubelet, error) {
	name := fmt.Sprintf("node-%d", number)
	address := netip.AddrFrom4([4]byte{172, 30, 0, byte(number)}) //nolint:gosec // few
	if err := r.Network.Alias(address); err != nil {
		return nil, err
	}
	api, err := r.User("system:node:"+name, "system:nodes")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(r.Dir, "pods")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // containers have users of their own
		return nil, err
	}
	var log hclog.Logger
	if c.Logger != nil {
		log = c.Logger.Named(name)
	}
	return kubelet.New(kubelet.Config{
		Name: name, Number: number, Address: address, Zone: "zone-" + string("abc"[(number-1)%3]), Region: "region-1",
		API: api, Network: r.Network, DNS: sandbox.DNSService, Dir: dir,
		Enter: filepath.Join(c.Programs.Own, "enter"), Image: c.image,
		BackOff: c.BackOff, Beat: c.NodeGrace / 10, Logger: log,
	})
}

// image knows our programs, "tools" for a container with the host's programs only, and Config.Images.
func (c *Config) image(name string) (kubelet.Image, bool) {
	name, _, _ = strings.Cut(name, "@")
	base := name[strings.LastIndexByte(name, '/')+1:]
	base, _, _ = strings.Cut(base, ":")
	if i, ok := c.Images[base]; ok {
		return i, true
	}
	own := kubelet.Image{Dir: c.Programs.Own, Mount: "/ko-app"}
	switch base {
	case "xds-server", "dataplane", "app":
		own.Entrypoint = []string{"/ko-app/" + base}
	case "tools":
	default:
		return kubelet.Image{}, false
	}
	return own, true
}

// Close ends everything, and removes what a temporary directory holds.
func (r *Rig) Close() {
	r.stop()
	if err := r.group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "rig:", err)
	}
	r.Cluster.Close()
	if r.temporary {
		_ = os.RemoveAll(r.Dir) // what is left is in the system's temporary directory
	}
}

// Rewind is the cluster's, of which the nodes are told.
func (r *Rig) Rewind(ctx context.Context, name string) error {
	for _, n := range r.Nodes {
		n.Restoring(true)
		defer n.Restoring(false)
	}
	return r.Cluster.Rewind(ctx, name)
}
