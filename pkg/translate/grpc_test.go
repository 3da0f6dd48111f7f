package translate_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/anypb"
)

// giver answers each new set of names with the resources as they are, and
// fails the test on a NACK. It is no more than a grpc-go client needs.
type giver struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t         *testing.T
	resources map[mesh.ResourceName]mesh.Resource
}

func (g *giver) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	asked := make(map[string][]string)
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		kind, names := r.GetTypeUrl(), r.GetResourceNames()
		if d := r.GetErrorDetail(); d != nil {
			// A client that closes while a response arrives refuses it with this word.
			if d.GetMessage() != "xdsChannel is closed" {
				g.t.Errorf("refused: %v: %s", names, d.GetMessage())
			}
			continue
		}
		if slices.Equal(asked[kind], names) {
			continue
		}
		asked[kind] = names
		answer := &discoveryv3.DiscoveryResponse{TypeUrl: kind, VersionInfo: fmt.Sprint(names), Nonce: fmt.Sprint(names)}
		for _, n := range names {
			if r, ok := g.resources[mesh.ResourceName{Type: mesh.Type(kind), Name: n}]; ok {
				answer.Resources = append(answer.Resources, &anypb.Any{TypeUrl: kind, Value: r.Body})
			}
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

// serve runs a gRPC server on a loopback port until the test ends.
func serve(t *testing.T, register func(*grpc.Server)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return netip.MustParseAddrPort(l.Addr().String())
}

// TestGRPCTakesEveryForm: grpc-go, the real client, accepts every form of
// resources that a service can ask for, and calls through them.
func TestGRPCTakesEveryForm(t *testing.T) {
	backend := serve(t, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, health.NewServer()) })
	forms := map[string]func(*mesh.Service){
		"plain":       func(*mesh.Service) {},
		"affinity":    func(s *mesh.Service) { s.ClientIPAffinity = true },
		"external":    func(s *mesh.Service) { s.Type, s.ExternalName = "ExternalName", "localhost" },
		"random":      annotate("lb-policy", "random"),
		"round-robin": annotate("lb-policy", "round-robin"),
		"ring-hash":   annotate("lb-policy", "ring-hash"),
		"maglev":      annotate("lb-policy", "maglev"),
		"outlier":     annotate("outlier", "on"),
		"outliers":    annotate("outlier", "consecutive-5xx=3,consecutive-gateway-failure=2,interval=1s,base-ejection-time=30s,max-ejection-percent=50"),
		"retry":       annotate("retry", "on=5xx|connect-failure|unavailable,attempts=2,per-try-timeout=1s"),
		"limits":      annotate("max-requests", "5"),
		"drain":       annotate("drain", "5s"),
	}
	s := newState()
	for name, form := range forms {
		service := echo()
		service.Name = name
		service.Ports[0].Port, service.Ports[0].AppProtocol = backend.Port(), "grpc"
		form(service)
		four, six := slice(name, "", "127.0.0.1", "10.0.0.9"), slice(name, "", "::1")
		four.Endpoints[1].Ready, four.Endpoints[1].Terminating, four.Endpoints[1].Zone = new(false), new(true), "z9"
		six.Name, six.AddressType = name+"-6", "IPv6"
		four.Ports[0].Port, six.Ports[0].Port = backend.Port(), backend.Port()
		s.apply(t, puts(service, four, six)...)
	}
	server := serve(t, func(r *grpc.Server) {
		discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, &giver{t: t, resources: s.resources})
	})
	resolver, err := xds.NewXDSResolverWithConfigForTesting(fmt.Appendf(nil,
		`{"xds_servers":[{"server_uri":%q,"channel_creds":[{"type":"insecure"}],"server_features":["xds_v3"]}],"node":{"id":"n"}}`, server))
	if err != nil {
		t.Fatal(err)
	}
	for name := range forms {
		t.Run(name, func(t *testing.T) {
			target := fmt.Sprintf("xds:///%s.default.svc.cluster.local:%d", name, backend.Port())
			c, err := grpc.NewClient(target, grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for range 3 {
				if _, err := healthpb.NewHealthClient(c).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func annotate(name, value string) func(*mesh.Service) {
	return func(s *mesh.Service) { s.Annotations = map[string]string{name: value} }
}
