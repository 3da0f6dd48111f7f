package bootstrap

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"
)

const (
	// controlPlane is the static cluster of the control plane.
	controlPlane = "xds-server"

	// A connection that answers no ping for pingTimeout is closed; without
	// pings Envoy keeps a half-open one for ever. The server allows a ping every 5 s.
	pingInterval = 10 * time.Second
	pingTimeout  = 5 * time.Second

	connectTimeout = time.Second
	// The pause before the next attempt at a stream doubles between these, with jitter.
	minBackoff = 500 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// Envoy gives the bootstrap of an Envoy, as YAML: CDS and LDS over ADS, load
// reports to the same server.
func Envoy(o Options) ([]byte, error) {
	o.Client = ForEnvoy
	if err := o.complete(); err != nil {
		return nil, err
	}
	b, err := envoy(o)
	if err != nil {
		return nil, err
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("write the bootstrap of %s: %w", o.NodeID, err)
	}
	// protojson varies its spaces on purpose.
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, fmt.Errorf("write the bootstrap of %s: %w", o.NodeID, err)
	}
	return yaml.Marshal(plain)
}

func envoy(o Options) (*bootstrapv3.Bootstrap, error) {
	metadata, err := structpb.NewStruct(o.metadata())
	if err != nil {
		return nil, fmt.Errorf("node metadata: %w", err)
	}
	admin, err := listenAddress(o.AdminAddress)
	if err != nil {
		return nil, err
	}
	cluster, err := controlPlaneCluster(o.XDSAddress)
	if err != nil {
		return nil, err
	}
	node := &corev3.Node{Id: o.NodeID, Cluster: o.Cluster}
	if len(metadata.GetFields()) > 0 {
		node.Metadata = metadata
	}
	if o.Region != "" || o.Zone != "" || o.SubZone != "" {
		node.Locality = &corev3.Locality{Region: o.Region, Zone: o.Zone, SubZone: o.SubZone}
	}
	api := corev3.ApiConfigSource_DELTA_GRPC
	if o.SotW {
		api = corev3.ApiConfigSource_GRPC
	}
	return &bootstrapv3.Bootstrap{
		Node:            node,
		Admin:           &bootstrapv3.Admin{Address: socket(admin.Addr().String(), admin.Port())},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{cluster}},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			AdsConfig: source(api, &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
				BaseInterval: durationpb.New(minBackoff), MaxInterval: durationpb.New(maxBackoff),
			}}),
			CdsConfig: ads(),
			LdsConfig: ads(),
		},
		ClusterManager: &bootstrapv3.ClusterManager{LoadStatsConfig: source(corev3.ApiConfigSource_GRPC, nil)},
	}, nil
}

func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

// source is the control plane as a gRPC service.
func source(api corev3.ApiConfigSource_ApiType, retry *corev3.RetryPolicy) *corev3.ApiConfigSource {
	return &corev3.ApiConfigSource{
		ApiType:             api,
		TransportApiVersion: corev3.ApiVersion_V3,
		GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: controlPlane, RetryPolicy: retry},
		}}},
		// A later message on the stream need not say who the node is.
		SetNodeOnFirstMessageOnly: true,
	}
}

func controlPlaneCluster(address string) (*clusterv3.Cluster, error) {
	host, port, err := hostPort(address)
	if err != nil {
		return nil, err
	}
	// A host name may stand for several replicas, and they may change.
	kind := clusterv3.Cluster_STRICT_DNS
	if _, err := netip.ParseAddr(host); err == nil {
		kind = clusterv3.Cluster_STATIC
	}
	protocol, err := anypb.New(&httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &corev3.Http2ProtocolOptions{ConnectionKeepalive: &corev3.KeepaliveSettings{
						Interval: durationpb.New(pingInterval), Timeout: durationpb.New(pingTimeout),
					}},
				},
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("write the cluster of the control plane: %w", err)
	}
	return &clusterv3.Cluster{
		Name:                 controlPlane,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: kind},
		ConnectTimeout:       durationpb.New(connectTimeout),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": protocol,
		},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: controlPlane,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
					Endpoint: &endpointv3.Endpoint{Address: socket(host, port)},
				}}},
			}},
		},
	}, nil
}

func socket(host string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}
