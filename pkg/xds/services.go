package xds

import (
	"context"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	extensionv3 "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TypeSecret is served where static resources hold any; its contents are shown to nobody but the nodes.
const TypeSecret mesh.Type = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

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
		{&clusterv3.ClusterDiscoveryService_ServiceDesc, mesh.TypeCluster},
		{&endpointv3.EndpointDiscoveryService_ServiceDesc, mesh.TypeEndpoint},
		{&endpointv3.LocalityEndpointDiscoveryService_ServiceDesc, "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint"},
		{&listenerv3.ListenerDiscoveryService_ServiceDesc, mesh.TypeListener},
		{&routev3.RouteDiscoveryService_ServiceDesc, mesh.TypeRoute},
		{&routev3.ScopedRoutesDiscoveryService_ServiceDesc, "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"},
		{&routev3.VirtualHostDiscoveryService_ServiceDesc, "type.googleapis.com/envoy.config.route.v3.VirtualHost"},
		{&secretv3.SecretDiscoveryService_ServiceDesc, TypeSecret},
		{&runtimev3.RuntimeDiscoveryService_ServiceDesc, "type.googleapis.com/envoy.service.runtime.v3.Runtime"},
		{&extensionv3.ExtensionConfigDiscoveryService_ServiceDesc, "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"},
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
		d.Handler = binding{server: s, delta: strings.HasPrefix(d.StreamName, "Delta"), only: svc.typ}.serve
		bound.Streams = append(bound.Streams, d)
	}
	return &bound
}

// binding is what a stream's method says of it.
type binding struct {
	server *Server
	delta  bool
	only   mesh.Type
}

func (b binding) serve(_ any, stream grpc.ServerStream) error {
	return b.server.serve(stream, transport{stream: stream, delta: b.delta, only: b.only})
}

// fetch refuses the REST variant: a client that polls cannot be known to be current.
func (s *Server) fetch(method string) func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
	return func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
		what := strings.TrimPrefix(method, "Fetch")
		return nil, status.Errorf(codes.Unimplemented, "%s: polling is not served; use Stream%s or Delta%s", method, what, what)
	}
}
