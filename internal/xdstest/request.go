package xdstest

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Request is a request of either protocol; what a protocol does not have is ignored.
type Request struct {
	Type mesh.Type
	// Node is sent as it is; the stream's own node goes into its first request
	// when this is nil.
	Node  *corev3.Node
	Nonce string
	// Error makes the request a NACK unless it is "".
	Error string

	// Version and Names are of state of the world: version_info and the whole
	// list of resource_names.
	Version string
	Names   []string

	// The rest is of delta. Initial maps names to versions.
	Subscribe, Unsubscribe []string
	Initial                map[string]string
}

func (r *Request) sotw() *discoveryv3.DiscoveryRequest {
	return &discoveryv3.DiscoveryRequest{
		Node: r.Node, TypeUrl: string(r.Type), ResponseNonce: r.Nonce, ErrorDetail: r.errorDetail(),
		VersionInfo: r.Version, ResourceNames: r.Names,
	}
}

func (r *Request) delta() *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{
		Node: r.Node, TypeUrl: string(r.Type), ResponseNonce: r.Nonce, ErrorDetail: r.errorDetail(),
		ResourceNamesSubscribe: r.Subscribe, ResourceNamesUnsubscribe: r.Unsubscribe, InitialResourceVersions: r.Initial,
	}
}

func (r *Request) errorDetail() *statuspb.Status {
	if r.Error == "" {
		return nil
	}
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: r.Error}
}
