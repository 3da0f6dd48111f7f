package translate

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	least_requestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglevv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	ring_hashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	round_robinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The values of the annotation lb-policy.
const (
	policyLeastRequest = "least-request"
	policyRoundRobin   = "round-robin"
	policyRandom       = "random"
	policyRingHash     = "ring-hash"
	policyMaglev       = "maglev"
)

// ringHash names its hash function: gRPC refuses the default one, which is the same.
var ringHash = &ring_hashv3.RingHash{HashFunction: ring_hashv3.RingHash_XX_HASH}

// policies are lists: a client takes the first entry that it supports, and
// every client supports the last (gRFC A52). RANDOM and MAGLEV in lb_policy
// would be refused by gRPC, and LEAST_REQUEST by some of its languages.
var policies = map[string]*clusterv3.LoadBalancingPolicy{
	policyLeastRequest: policyList(&least_requestv3.LeastRequest{}, &round_robinv3.RoundRobin{}),
	policyRoundRobin:   policyList(&round_robinv3.RoundRobin{}),
	policyRandom:       policyList(&randomv3.Random{}, &round_robinv3.RoundRobin{}),
	policyRingHash:     policyList(ringHash, &round_robinv3.RoundRobin{}),
	policyMaglev:       policyList(&maglevv3.Maglev{}, ringHash, &round_robinv3.RoundRobin{}),
}

var policyNames = map[string]string{
	"envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest": "envoy.load_balancing_policies.least_request",
	"envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin":     "envoy.load_balancing_policies.round_robin",
	"envoy.extensions.load_balancing_policies.random.v3.Random":              "envoy.load_balancing_policies.random",
	"envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash":         "envoy.load_balancing_policies.ring_hash",
	"envoy.extensions.load_balancing_policies.maglev.v3.Maglev":              "envoy.load_balancing_policies.maglev",
}

func policyList(configs ...proto.Message) *clusterv3.LoadBalancingPolicy {
	list := &clusterv3.LoadBalancingPolicy{}
	for _, c := range configs {
		list.Policies = append(list.Policies, &clusterv3.LoadBalancingPolicy_Policy{
			TypedExtensionConfig: &corev3.TypedExtensionConfig{
				Name:        policyNames[string(c.ProtoReflect().Descriptor().FullName())],
				TypedConfig: pack(c),
			},
		})
	}
	return list
}

// http2Upstream is prior knowledge of HTTP/2; without it Envoy speaks HTTP/1.1.
var http2Upstream = map[string]*anypb.Any{
	"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": pack(&httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
				},
			},
		},
	}),
}

// clusterOf makes a cluster; one with hosts resolves them by DNS.
func clusterOf(t target, p protocol, s *settings, hosts []dnsHost) made {
	c := &clusterv3.Cluster{
		Name:                t.name(),
		AltStatName:         t.statName(),
		ConnectTimeout:      durationpb.New(s.connectTimeout),
		LoadBalancingPolicy: s.balancing(),
		// DRAINING counts as unhealthy, so Envoy's default of 50% would send
		// requests to terminating pods in the middle of a rolling update.
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{
			HealthyPanicThreshold: &typev3.Percent{Value: s.panicThreshold},
			// Envoy keeps changes of health back for a second, to merge them, but acknowledges at once:
			// a pod that every node has acknowledged as DRAINING would still be sent requests.
			UpdateMergeWindow: durationpb.New(0),
		},
		CircuitBreakers:  s.breakers(),
		OutlierDetection: s.outlier.proto(),
		HealthChecks:     s.healthCheck.proto(p.http2),
		Metadata:         s.metadata(t.port, p),
	}
	if p.http2 {
		c.TypedExtensionProtocolOptions = http2Upstream
	}
	var follow []mesh.ResourceName
	if len(hosts) > 0 {
		resolve(c, hosts)
	} else {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()}
		follow = []mesh.ResourceName{{Type: mesh.TypeEndpoint, Name: c.GetName()}}
	}
	return made{Resource: mesh.Resource{Type: mesh.TypeCluster, Name: c.GetName(), Body: marshal(c), FollowedBy: follow}}
}

// resolve makes c a DNS cluster. One host is LOGICAL_DNS, which gRPC takes too
// (gRFC A37); several are STRICT_DNS, which only Envoy and our data plane take.
func resolve(c *clusterv3.Cluster, hosts []dnsHost) {
	kind := clusterv3.Cluster_LOGICAL_DNS
	if len(hosts) > 1 {
		kind = clusterv3.Cluster_STRICT_DNS
	}
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
	// AUTO would take IPv6 alone wherever a name has both (RFC 8305 wants both).
	c.DnsLookupFamily = clusterv3.Cluster_ALL
	group := &endpointv3.LocalityLbEndpoints{
		Locality:            &corev3.Locality{},
		LoadBalancingWeight: wrapperspb.UInt32(uint32(len(hosts))),
	}
	for _, h := range hosts {
		group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socketAddress(h.name, h.port)}},
		})
	}
	c.LoadAssignment = &endpointv3.ClusterLoadAssignment{
		ClusterName: c.GetName(),
		Endpoints:   []*endpointv3.LocalityLbEndpoints{group},
	}
}

// ads says that a resource comes over the stream that named it: "self" is refused by Envoy, everything else by gRPC.
func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

// breakers are nil when the service says nothing: clients have defaults.
func (s *settings) breakers() *clusterv3.CircuitBreakers {
	if s.maxConnections == nil && s.maxPending == nil && s.maxRequests == nil && s.maxRetries == nil {
		return nil
	}
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     wrap(s.maxConnections),
		MaxPendingRequests: wrap(s.maxPending),
		MaxRequests:        wrap(s.maxRequests),
		MaxRetries:         wrap(s.maxRetries),
	}}}
}

func wrap(n *uint32) *wrapperspb.UInt32Value {
	if n == nil {
		return nil
	}
	return wrapperspb.UInt32(*n)
}

func (o *outlier) proto() *clusterv3.OutlierDetection {
	if o == nil {
		return nil
	}
	return &clusterv3.OutlierDetection{
		Consecutive_5Xx:           said(o.consecutive5xx),
		ConsecutiveGatewayFailure: said(o.consecutiveGateway),
		MaxEjectionPercent:        said(o.maxEjectionPercent),

		ConsecutiveLocalOriginFailure:  said(o.consecutiveLocal),
		SuccessRateMinimumHosts:        said(o.successRateHosts),
		SuccessRateRequestVolume:       said(o.successRateRequests),
		SuccessRateStdevFactor:         said(o.successRateStdev),
		MaxEjectionTime:                saidDuration(o.maxEjectionTime),
		SplitExternalLocalOriginErrors: o.splitLocal,

		Interval:         saidDuration(o.interval),
		BaseEjectionTime: saidDuration(o.baseEjectionTime),
		// Envoy only records gateway failures unless it is told to act on them.
		EnforcingConsecutiveGatewayFailure: saidIf(o.consecutiveGateway > 0, 100),
	}
}

func said(n uint32) *wrapperspb.UInt32Value { return saidIf(n > 0, n) }

func saidIf(ok bool, n uint32) *wrapperspb.UInt32Value {
	if !ok {
		return nil
	}
	return wrapperspb.UInt32(n)
}

func saidDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// metadata is what xDS has no field for; nil when there is none of it.
func (s *settings) metadata(port uint16, p protocol) *corev3.Metadata {
	fields := make(map[string]*structpb.Value)
	if !p.http {
		fields[mesh.OpaqueKey] = structpb.NewBoolValue(true)
	}
	if s.skip[port] {
		fields[mesh.SkipKey] = structpb.NewBoolValue(true)
	}
	if s.proxyProtocol[port] {
		fields[mesh.ProxyProtocolKey] = structpb.NewBoolValue(true)
	}
	if s.drain != nil {
		fields[mesh.DrainKey] = structpb.NewStringValue(s.drain.String())
	}
	if s.timeout > 0 {
		fields[mesh.TimeoutKey] = structpb.NewStringValue(s.timeout.String())
	}
	if s.retry != nil {
		fields[mesh.RetryKey] = structpb.NewStructValue(s.retry.metadata())
	}
	if s.closing.onEjection {
		fields[mesh.CloseOnEjectionKey] = structpb.NewBoolValue(true)
	}
	if s.closing.onOverload {
		fields[mesh.CloseOnOverloadKey] = structpb.NewBoolValue(true)
	}
	if len(fields) == 0 {
		return nil
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{mesh.MetadataNamespace: {Fields: fields}}}
}
