package xds

import (
	"context"
	"strings"

	clusterservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	extensionservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	listenerservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	routeservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	runtimeservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	secretservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// service is one discovery service and the type that its streams are bound to,
// "" for the aggregated one ("Four Variants").
type service struct {
	desc *grpc.ServiceDesc
	typ  mesh.Type
}

// services are all of Envoy's discovery services, ADS first. A type without a
// service of its own is had over ADS.
func services() []service {
	return []service{
		{&discoveryv3.AggregatedDiscoveryService_ServiceDesc, ""},
		{&clusterservicev3.ClusterDiscoveryService_ServiceDesc, mesh.TypeCluster},
		{&endpointservicev3.EndpointDiscoveryService_ServiceDesc, mesh.TypeEndpoint},
		{&endpointservicev3.LocalityEndpointDiscoveryService_ServiceDesc, "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint"},
		{&listenerservicev3.ListenerDiscoveryService_ServiceDesc, mesh.TypeListener},
		{&routeservicev3.RouteDiscoveryService_ServiceDesc, mesh.TypeRoute},
		{&routeservicev3.ScopedRoutesDiscoveryService_ServiceDesc, "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"},
		{&routeservicev3.VirtualHostDiscoveryService_ServiceDesc, "type.googleapis.com/envoy.config.route.v3.VirtualHost"},
		{&secretservicev3.SecretDiscoveryService_ServiceDesc, mesh.TypeSecret},
		{&runtimeservicev3.RuntimeDiscoveryService_ServiceDesc, "type.googleapis.com/envoy.service.runtime.v3.Runtime"},
		{&extensionservicev3.ExtensionConfigDiscoveryService_ServiceDesc, "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"},
	}
}

// Register adds the discovery services and CSDS to a grpc.Server made with ServerOptions.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	for _, svc := range services() {
		r.RegisterService(s.bind(svc), s)
	}
	statusv3.RegisterClientStatusDiscoveryServiceServer(r, csds{server: s})
}

// bind gives the description of a service whose streams this server runs. The
// generated ones want an implementation with a method for each stream; all of
// them come to the same here.
func (s *Server) bind(svc service) *grpc.ServiceDesc {
	bound := grpc.ServiceDesc{ServiceName: svc.desc.ServiceName, HandlerType: (*any)(nil), Metadata: svc.desc.Metadata}
	for _, m := range svc.desc.Methods {
		bound.Methods = append(bound.Methods, grpc.MethodDesc{MethodName: m.MethodName, Handler: s.fetch(m.MethodName)})
	}
	for _, d := range svc.desc.Streams {
		delta := strings.HasPrefix(d.StreamName, "Delta")
		d.Handler = func(_ any, stream grpc.ServerStream) error {
			return s.serve(stream, transport{stream: stream, delta: delta, only: svc.typ})
		}
		bound.Streams = append(bound.Streams, d)
	}
	return &bound
}

// fetch refuses the REST variant: a client that polls cannot be known to be current.
func (s *Server) fetch(method string) func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
	return func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
		what := strings.TrimPrefix(method, "Fetch")
		return nil, status.Errorf(codes.Unimplemented, "%s: polling is not served; use Stream%s or Delta%s", method, what, what)
	}
}
