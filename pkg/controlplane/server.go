package controlplane

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin"
	"github.com/freshmesh/freshmesh/pkg/auditlog"
	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/refresh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/static"
	"github.com/freshmesh/freshmesh/pkg/translate"
	"github.com/freshmesh/freshmesh/pkg/xds"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
)

// Config of a Server. Source, Logger and Registry are required.
type Config struct {
	Source        mesh.Source
	ClusterDomain string
	Policy        ack.Policy
	// Static are resources that are served beside those made of Source's objects; may be nil.
	Static *static.Source
	// MaxNames, MaxNodeStreams and MaxNodeBytes are the limits of package xds; 0: its defaults.
	MaxNames, MaxNodeStreams, MaxNodeBytes int
	// MaxStreams bounds the streams of one connection; 0: no bound.
	MaxStreams int
	// MaxRequestBytes bounds one request; 0 means 32 MiB, since a reconnecting
	// client names all that it holds.
	MaxRequestBytes int
	// ReportInterval is how often proxies report load; 0 means 10 s.
	ReportInterval time.Duration
	// HistoryLimit bounds the lines of the history of published changes; 0 means history.DefaultLimit.
	HistoryLimit int
	// AuditLog is run by Run, and takes what is published and what happens to nodes; may be nil.
	AuditLog *auditlog.Log
	// DrainSettle is how long a drain that is over waits for what is on its way to the endpoint, before it is answered; 0: not at all.
	DrainSettle time.Duration
	// Build is shown in the audit.
	Build string
	Pprof bool
	// Channelz serves gRPC's channelz beside xDS.
	Channelz bool
	Logger   hclog.Logger
	Registry *prometheus.Registry
}

// Server is a control plane.
type Server struct {
	cfg     Config
	loop    *loop
	xds     *xds.Server
	refresh *refresh.Refresher
	admin   *admin.Server
	grpc    *grpc.Server
	health  *health.Server
	store   *snapshot.Store
	drains  *drains
	// done ends the load reports when the server stops.
	done chan struct{}
}

// New assembles a Server; it does nothing before Run.
func New(c Config) *Server {
	s := &Server{cfg: c, store: snapshot.New(snapshot.Config{}), done: make(chan struct{})}
	propagation := xds.Propagation()
	s.drains = newDrains(s)
	s.loop = newLoop(translate.Config{ClusterDomain: c.ClusterDomain}, c.Static != nil, s.store,
		c.Logger.Named("loop"), newMetrics(c.Registry, propagation, sources{c.Source, c.Static}))
	s.loop.history = history.New(c.HistoryLimit)
	var events func(xds.Event)
	if c.AuditLog != nil {
		events, s.loop.onPublished = s.logEvent, s.logPublished
	}
	s.xds = xds.New(xds.Config{
		Store: s.store, Policy: c.Policy, Ready: s.ready, Own: ownListeners, Events: events,
		MaxNames: c.MaxNames, MaxNodeStreams: c.MaxNodeStreams, MaxNodeBytes: c.MaxNodeBytes,
		Logger: c.Logger.Named("xds"), Registerer: c.Registry, Propagation: propagation,
	})
	s.loop.published = s.drains.published
	s.loop.places, s.loop.uses = s.drains.places, s.drains.history
	s.refresh = refresh.New(refresh.Config{
		Nodes: nodes{s.xds}, Services: s.loop, Reader: c.Source, Reconciler: s.loop,
		Logger: c.Logger, Registerer: c.Registry,
	})
	s.admin = admin.New(admin.Config{
		Auditor: s, Store: s, Resyncer: s, Statuser: s, Explainer: s, Drainer: s, Versioner: s, Gatherer: c.Registry,
		Pprof: c.Pprof, Logger: c.Logger,
	})
	s.grpc, s.health = newGRPC(c), health.NewServer()
	s.registerServices()
	return s
}

// drainTime bounds how long Run waits for calls to end once it stops.
const drainTime = 3 * time.Second

// Run serves on the two listeners, which it closes, until ctx ends; then every
// stream is ended, and it gives nil. The error says what failed before.
func (s *Server) Run(ctx context.Context, xdsListener, adminListener net.Listener) error {
	defer s.runAuditLog(ctx)()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.cfg.Source.Run(ctx, s.loop.queue); err != nil {
			return fmt.Errorf("source %s: %w", s.cfg.Source.Name(), err)
		}
		return nil
	})
	if s.cfg.Static != nil {
		g.Go(func() error {
			if err := s.cfg.Static.Run(ctx, fileQueue{s.loop.queue}); err != nil {
				return fmt.Errorf("static resources: %w", err)
			}
			return nil
		})
	}
	g.Go(func() error { return s.loop.run(ctx) })
	g.Go(func() error { return s.refresh.Run(ctx) })
	g.Go(func() error { return s.drains.run(ctx) })
	g.Go(func() error { return s.admin.Serve(ctx, adminListener) })
	g.Go(func() error {
		if err := s.grpc.Serve(xdsListener); err != nil {
			return fmt.Errorf("serve xDS on %s: %w", xdsListener.Addr(), err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		s.stop()
		return nil
	})
	s.cfg.Logger.Info("serving", "xds", xdsListener.Addr().String(), "admin", adminListener.Addr().String(),
		"source", s.cfg.Source.Name(), "instance", s.xds.Instance())
	return g.Wait()
}

func (s *Server) stop() {
	s.health.Shutdown()
	s.xds.Shutdown()
	close(s.done)
	hard := time.AfterFunc(drainTime, s.grpc.Stop)
	defer hard.Stop()
	s.grpc.GracefulStop()
}

// ready gives nil once the source has synced: half an inventory, served, would
// take endpoints away from every proxy.
func (s *Server) ready() error {
	if s.loop.synced.Load() {
		return nil
	}
	status := s.cfg.Source.Status()
	if status.Synced && s.cfg.Static != nil {
		return fmt.Errorf("the static resources are not all read yet: %s", s.cfg.Static.Status().Reason)
	}
	if status.Reason == "" {
		return fmt.Errorf("source %s has not synced yet", s.cfg.Source.Name())
	}
	return fmt.Errorf("source %s has not synced yet: %s", s.cfg.Source.Name(), status.Reason)
}

// ownListeners gives a node that binds sockets the listeners that its metadata asks for.
func ownListeners(n xds.Node) ([]mesh.Resource, error) {
	if n.View.Listeners != mesh.ListenersSocket {
		return nil, nil
	}
	resources, problems := translate.NodeListeners(translate.NodeOptions{OutboundAddress: n.OutboundAddress, TCP: n.TCP})
	if len(problems) > 0 {
		return nil, fmt.Errorf("node.metadata: %s", problems[0])
	}
	return resources, nil
}

// nodes implements refresh.Nodes. A cluster and its assignment have one name.
type nodes struct{ xds *xds.Server }

var clusterTypes = [...]mesh.Type{mesh.TypeCluster, mesh.TypeEndpoint}

func (n nodes) Holds(node mesh.NodeID, cluster string) refresh.Holding {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	out := refresh.Holding{Stranger: true}
	for _, t := range clusterTypes {
		current, known, err := n.xds.Holds(ctx, node, t, cluster)
		if err != nil {
			return refresh.Holding{}
		}
		out.Behind = out.Behind || known && !current
		out.Stranger = out.Stranger && !known
	}
	return out
}

func (n nodes) Resend(node mesh.NodeID, cluster string) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	for _, t := range clusterTypes {
		if _, err := n.xds.Resend(ctx, node, t, cluster); err != nil {
			return // the node reports again if it still fails
		}
	}
}
