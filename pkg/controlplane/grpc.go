package controlplane

import (
	"cmp"
	"math"
	"time"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/freshmesh/freshmesh/pkg/drain/drainv1"
	"github.com/freshmesh/freshmesh/pkg/xds"
	"github.com/freshmesh/freshmesh/pkg/xds/lrs"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// minPing is the least time between two keepalive pings that a client may send.
const minPing = 5 * time.Second

func newGRPC(c Config) *grpc.Server {
	return grpc.NewServer(append(xds.ServerOptions(),
		grpc.MaxRecvMsgSize(cmp.Or(c.MaxRequestBytes, 32<<20)),
		grpc.MaxConcurrentStreams(cmp.Or(uint32(c.MaxStreams), math.MaxUint32)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		// A connection whose peer is gone is noticed as soon as a silent stream is.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: c.Policy.ProbeInterval, Timeout: c.Policy.AckTimeout}),
	)...)
}

// registerServices adds everything that the gRPC server serves.
func (s *Server) registerServices() {
	s.xds.Register(s.grpc)
	loadstatsv3.RegisterLoadReportingServiceServer(s.grpc, lrs.New(lrs.Config{
		Sink: s.refresh, Interval: s.cfg.ReportInterval, Logger: s.cfg.Logger.Named("lrs"), Done: s.done,
		MaxNodeStreams: s.cfg.MaxNodeStreams,
	}))
	drainv1.RegisterDrainServiceServer(s.grpc, drainService{server: s})
	if s.cfg.Channelz {
		channelz.RegisterChannelzServiceToServer(s.grpc)
	}
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.setHealth(healthv1.HealthCheckResponse_NOT_SERVING)
	s.loop.onSync = func() {
		s.logSynced(s.store.Snapshot().Generation())
		s.drains.begin()
		s.setHealth(healthv1.HealthCheckResponse_SERVING)
	}
}

// setHealth sets the health of the server and of each of its services (gRPC
// Health Checking Protocol). After the shutdown of health it does nothing.
func (s *Server) setHealth(status healthv1.HealthCheckResponse_ServingStatus) {
	s.health.SetServingStatus("", status)
	for name := range s.grpc.GetServiceInfo() {
		s.health.SetServingStatus(name, status)
	}
}
