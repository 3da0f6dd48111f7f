package kube

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// defaultCheckInterval is Config.CheckInterval when that is 0.
const defaultCheckInterval = 30 * time.Second

// The client's own rate limit. Five feeds and the budgeted live reads stay far
// below it; it is there for the server's sake, should one of them go wrong.
const (
	requestsPerSecond = 50
	requestBurst      = 100
)

// dialTimeout bounds one connection attempt, so that an address that swallows
// packets shows as soon as one that refuses.
const dialTimeout = 5 * time.Second

// keepAlive has the kernel find a peer that is gone within 25 s, also behind a
// watch that uses a connection alone, as it does over HTTP/1.1.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// Config configures a Source.
type Config struct {
	// Kubeconfig is a kubeconfig file; "" takes the service account of the pod
	// that the program runs in.
	Kubeconfig string
	// Context is the context of the kubeconfig; "" takes its current one.
	Context string
	// CheckInterval is within how long a watch that stopped delivering, a
	// listing that is not answered, and a server that went back to an older
	// state are found; 0 means 30 s. A server whose answers take longer than a sixtieth of it is given more
	// time: then it may be two intervals. A server that is silent for a sixth of it
	// is asked something. Watches are asked to last a third of it, in whole
	// seconds, at least 2, so 6 s is the least that keeps its word.
	CheckInterval time.Duration
	// Logger may be nil.
	Logger hclog.Logger
	// Registerer takes the metrics; may be nil. Registering twice with one panics.
	Registerer prometheus.Registerer
}

// New makes a Source. It reads the kubeconfig but sends nothing: a server that
// is away is no error. The error, of one line, is for a configuration that
// cannot be used.
func New(c Config) (*Source, error) {
	r, err := restConfig(c)
	if err != nil {
		return nil, err
	}
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}).DialContext)
	r.Dial = dialer.DialContext
	r.UserAgent = "freshmesh-xds-server"
	r.QPS, r.Burst = requestsPerSecond, requestBurst
	r.ContentType = "application/vnd.kubernetes.protobuf"
	r.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	r.WarningHandler = rest.NoWarnings{}
	limits := newLimits(c.Registerer)
	r.Wrap(limits.wrap)
	client, err := kubernetes.NewForConfig(r)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", flat(err))
	}
	s := NewForClient(client, hostOf(r.Host), c)
	s.dropConnections = dialer.CloseAll
	return s, nil
}

// NewForClient makes a Source over a client that exists; server names the API
// server in reasons. Of c, it takes all but the kubeconfig.
func NewForClient(client kubernetes.Interface, server string, c Config) *Source {
	s := &Source{
		client:          client,
		server:          server,
		log:             c.Logger,
		times:           timesOf(cmp.Or(c.CheckInterval, defaultCheckInterval)),
		pace:            &pace{},
		dropConnections: func() {},
	}
	if s.log == nil {
		s.log = hclog.NewNullLogger()
	}
	s.health = newHealth(server, s.log, time.Now())
	relists := newRelists(c.Registerer)
	s.feeds = make(map[mesh.Kind]*feed, len(resources))
	for _, r := range resources {
		s.feeds[r.kind] = &feed{
			resource: r, client: client, health: s.health, times: s.times, log: s.log, relists: relists,
			held: s.health.kinds[r.kind].held, pace: s.pace, faulty: make(map[mesh.Key]bool),
		}
	}
	return s
}

// restConfig reads the kubeconfig, or the pod's service account.
func restConfig(c Config) (*rest.Config, error) {
	if c.Kubeconfig == "" {
		r, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("kubernetes: no kubeconfig given, and not running in a cluster (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set)")
		}
		if err != nil {
			return nil, fmt.Errorf("in-cluster configuration: %w", flat(err))
		}
		return r, nil
	}
	file, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig}).Load()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", c.Kubeconfig, flat(withoutPath(err)))
	}
	name := c.Context
	if name == "" {
		name = file.CurrentContext
	}
	if name == "" {
		return nil, fmt.Errorf("kubeconfig %s: no current-context, and no context given", c.Kubeconfig)
	}
	if file.Contexts[name] == nil {
		return nil, fmt.Errorf("kubeconfig %s: context %q does not exist", c.Kubeconfig, name)
	}
	r, err := clientcmd.NewNonInteractiveClientConfig(*file, name, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: context %q: %w", c.Kubeconfig, name, flat(err))
	}
	return r, nil
}

// Check tells what is wrong with c's kubeconfig, or the files that it names; nil for nothing. It sends nothing.
// The error, of one line, names the kubeconfig.
func (c Config) Check() error {
	r, err := restConfig(c)
	if err != nil {
		return err
	}
	if _, _, err := rest.DefaultServerUrlFor(r); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", c.Kubeconfig, flat(err))
	}
	if _, err := rest.TLSConfigFor(r); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", c.Kubeconfig, flat(err))
	}
	return nil
}

// hostOf is the host and port of a server's URL.
func hostOf(server string) string {
	if u, err := url.Parse(server); err == nil && u.Host != "" {
		return u.Host
	}
	return server
}

var _ mesh.Source = (*Source)(nil)
