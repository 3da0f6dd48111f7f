package dataplane

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/pkg/dataplane/admin"
	"github.com/freshmesh/freshmesh/pkg/dataplane/barrier"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/limit"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxy"
)

// Proxy is an assembled data plane. Run it once.
type Proxy struct {
	// set once
	cfg       Config
	log       hclog.Logger
	discovery *discovery.Client
	set       *endpoints.Set
	tracker   *proxy.Tracker
	// traffic are the listeners that carry traffic, admin the admin and health addresses.
	traffic   []*trafficListener
	admin     []*httpListener
	listeners []admin.Listener
	// own are the addresses that connections are captured at.
	own    []net.Addr
	limits *limits
	// inbound holds the destinations on this host; nil without an inbound listener.
	inbound *endpoints.Set
	// access and accessFile are nil without an access log; the file is also nil for standard output.
	access     *proxy.AccessLog
	accessFile *os.File

	// quit, closeNow and closeLater are what others ask of Run: to end, and to close the
	// listeners at once or after the drain time. Each has room for one.
	quit, closeNow, closeLater chan struct{}

	unhealthy atomic.Bool
	pulse     endpoints.Pulse
}

type httpListener struct {
	name     string
	listener net.Listener
	server   *http.Server
}

type trafficListener struct {
	listener net.Listener
	relay    relay
}

// relay is a handler of package proxy.
type relay interface {
	Serve(ctx context.Context, l net.Listener) error
}

// New opens the listeners and makes everything ready to run. Its errors are
// one line, fit for a person: "PURPOSE address ADDRESS: cause". A Proxy that is not run must be closed with Close.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, log: cfg.Logger, quit: make(chan struct{}, 1), closeNow: make(chan struct{}, 1), closeLater: make(chan struct{}, 1)}
	if err := p.assemble(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Proxy) assemble() error {
	metrics, err := proxy.NewMetrics(p.cfg.Registry)
	if err != nil {
		return err
	}
	p.tracker = proxy.NewTracker(metrics)
	p.tracker.Spread = p.cfg.DrainTime / 4
	if err := p.openAccessLog(); err != nil {
		return err
	}
	reporter := &lateReporter{}
	p.set = endpoints.New(endpoints.Config{
		Reporter: reporter, FailFast: p.cfg.FailFast, Drain: p.cfg.DrainTime, Ejected: metrics.Ejected, Panicked: metrics.Panicked,
		Pulse: &p.pulse, Logger: p.log,
	})
	if err := p.cfg.Registry.Register(endpoints.NewCollector(p.set)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	p.discovery, err = discovery.New(discovery.Config{
		NodeID: p.cfg.NodeID, Namespace: p.cfg.Namespace, Pod: p.cfg.Pod, KubernetesNode: p.cfg.KubernetesNode, Region: p.cfg.Region, Zone: p.cfg.Zone,
		Version: p.cfg.Version, Servers: p.cfg.XDSAddresses, Applier: p.set, Logger: p.log.Named("discovery"),
		Registerer: p.cfg.Registry, StateDir: p.cfg.StateDir, MaxAge: p.cfg.DiscoveryMaxAge,
		SilenceTimeout: p.cfg.SilenceTimeout, MaxUnknown: p.cfg.MaxUnknown, DisableRefresh: p.cfg.DisableRefresh,
	})
	if err != nil {
		return err
	}
	reporter.Client = p.discovery
	if err := p.limit(); err != nil {
		return err
	}
	shared := proxy.Config{
		Discovery: p.discovery, Endpoints: p.set, Metrics: metrics, Tracker: p.tracker, Logger: p.log.Named("proxy"),
		Names: proxy.Names{Namespace: p.cfg.Namespace, Domain: p.cfg.ClusterDomain}, DiscoveryTimeout: p.cfg.DiscoveryTimeout,
		AccessLog: p.access, MaxActive: p.cfg.MaxActiveRequests, MaxRequestBytes: p.cfg.MaxRequestBytes,
		MaxConnectionAge: p.cfg.MaxConnectionAge, MaxConnectionAgeGrace: p.cfg.MaxConnectionAgeGrace,
		Limits: p.limits.requests, TCPIdle: p.cfg.Limits.TCPIdle,
	}
	return p.listen(shared)
}

func (p *Proxy) openAccessLog() (err error) {
	out := os.Stdout
	switch p.cfg.AccessLog {
	case "":
		return nil
	case "-":
	default:
		if p.accessFile, err = os.OpenFile(p.cfg.AccessLog, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640); err != nil {
			return fmt.Errorf("access log: %w", err)
		}
		out = p.accessFile
	}
	p.access, err = proxy.NewAccessLog(out, p.cfg.Registry)
	return err
}

// lateReporter breaks the circle between endpoints, which report to
// discovery, and discovery, which applies to endpoints. Nothing reports before
// both are made.
type lateReporter struct{ *discovery.Client }

func (p *Proxy) listen(shared proxy.Config) error {
	if err := p.listenCaptured(shared); err != nil {
		return err
	}
	for _, l := range p.cfg.Listens {
		p.discovery.Subscribe(l.Cluster)
		nl, err := open(l.Address, "listen")
		if err != nil {
			return err
		}
		if l.HTTP {
			p.take(l.Cluster, "http", nl, &proxy.HTTP{Config: shared, Bound: l.Cluster})
		} else {
			p.take(l.Cluster, "tcp", nl, &proxy.TCP{Config: shared, Cluster: l.Cluster, ProxyHeader: l.ProxyHeader})
		}
	}
	return p.listenAdmin()
}

func open(address, purpose string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err == nil {
		return l, nil
	}
	return nil, openError(address, purpose, err)
}

// openError says on one line why an address cannot be listened on.
func openError(address, purpose string, err error) error {
	// Of "listen tcp ADDRESS: bind: address already in use" the end is news.
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		err = call.Err
	}
	if bad, ok := errors.AsType[*net.AddrError](err); ok {
		err = errors.New(bad.Err)
	}
	return fmt.Errorf("%s address %s: %w", purpose, address, err)
}

// take adds a listener of traffic.
func (p *Proxy) take(name, protocol string, l net.Listener, r relay) {
	p.traffic = append(p.traffic, &trafficListener{limit.Listen(l, p.limits.connections), r})
	p.listeners = append(p.listeners, admin.Listener{Name: name, Address: l.Addr().String(), Protocol: protocol})
}

func (p *Proxy) listenAdmin() error {
	cfg := admin.Config{
		NodeID: string(p.cfg.NodeID), Version: p.cfg.Version, StartedAt: time.Now(), Discovery: p.discovery, Endpoints: p.set,
		Listeners: p.listeners, Gatherer: p.cfg.Registry, Logger: p.log, State: p.State, Drain: p.Drain,
		FailHealth: p.unhealthy.Store, Quit: p.Quit, Pprof: p.cfg.Pprof,
		Barrier: barrier.New(barrier.Config{
			Servers: p.cfg.XDSAddresses, Namespace: p.cfg.Namespace, Pod: p.cfg.Pod, NodeID: string(p.cfg.NodeID),
		}),
	}
	for _, s := range []struct {
		name, address string
		handler       http.Handler
	}{{"admin", p.cfg.AdminAddress, admin.Handler(cfg)}, {"health", p.cfg.HealthAddress, admin.HealthHandler(cfg)}} {
		if s.address == "" {
			continue
		}
		l, err := open(s.address, s.name)
		if err != nil {
			return err
		}
		p.admin = append(p.admin, &httpListener{s.name, l, &http.Server{Handler: s.handler, ErrorLog: p.stdLog(), ReadHeaderTimeout: 10 * time.Second}})
	}
	return nil
}

// stdLog carries what net/http's servers have to say, which is about clients and seldom of use.
func (p *Proxy) stdLog() *log.Logger {
	return p.log.Named("http").StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})
}

// Close closes the listeners of a Proxy that is not run.
func (p *Proxy) Close() {
	p.closeListeners()
	for _, l := range p.admin {
		_ = l.listener.Close()
	}
	p.closeSets()
	if p.accessFile != nil {
		_ = p.accessFile.Close()
	}
}

// Addresses gives where the proxy listens, by name: "outbound", "inbound",
// "admin", "health", and each cluster of Config.Listens. Useful with port 0.
func (p *Proxy) Addresses() map[string]string {
	out := map[string]string{}
	for _, l := range p.listeners {
		out[l.Name] = l.Address
	}
	for _, l := range p.admin {
		out[l.name] = l.listener.Addr().String()
	}
	return out
}

// State tells whether the proxy is ready, and if not, why.
func (p *Proxy) State() admin.State {
	switch {
	case p.tracker.Draining():
		return admin.Draining
	case p.unhealthy.Load():
		return admin.HealthcheckFailed
	}
	if s := p.discovery.Status(); !s.Answered && s.LoadedFromDisk == 0 {
		return admin.PreInitializing
	}
	return admin.Live
}

// Drain begins a drain without exit: readiness fails, connections are wound
// up. The listeners close at once, or with grace after the drain time.
func (p *Proxy) Drain(graceful bool) {
	p.tracker.Drain()
	if graceful {
		ask(p.closeLater)
	} else {
		ask(p.closeNow)
	}
}

// Quit makes Run drain and return, as the end of its context does.
func (p *Proxy) Quit() { ask(p.quit) }

// ask asks once; asking again while nobody has looked changes nothing.
func ask(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
