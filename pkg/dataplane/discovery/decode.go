package discovery

import (
	"errors"
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	httpOptionsName = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	policyPackage   = "type.googleapis.com/envoy.extensions.load_balancing_policies."

	defaultConnectTimeout = 5 * time.Second
	// defaultRefreshRate is Envoy's default of Cluster.dns_refresh_rate.
	defaultRefreshRate = 5 * time.Second
)

// clusterPart is what a Cluster resource says. Immutable.
type clusterPart struct {
	// base lacks endpoints, versions and times.
	base Cluster
	// eds is the name of the assignment; "" when the resource brings its endpoints itself.
	eds string
	// inline are the endpoints of a STATIC or DNS cluster.
	inline []target
	// refresh is how often host names are looked up again.
	refresh time.Duration
}

// decoded is the content of a resource: one of the two.
type decoded struct {
	cluster   *clusterPart
	endpoints []mesh.Endpoint
}

// decode reads one resource of type t. It never panics: whatever a parser does
// on hostile bytes becomes an error, which becomes the text of a NACK.
func decode(t mesh.Type, name string, body *anypb.Any) (d decoded, err error) {
	defer func() {
		if r := recover(); r != nil {
			d, err = decoded{}, fmt.Errorf("decoder failed: %v", r)
		}
	}()
	if got := body.GetTypeUrl(); got != string(t) {
		return decoded{}, fmt.Errorf("resource is a %s", got)
	}
	switch t {
	case mesh.TypeCluster:
		d.cluster, err = decodeCluster(name, body.GetValue())
	case mesh.TypeEndpoint:
		d.endpoints, err = decodeAssignment(name, body.GetValue())
	default:
		err = fmt.Errorf("type %s is not used", t)
	}
	return d, err
}

func decodeCluster(name string, body []byte) (*clusterPart, error) {
	var c clusterv3.Cluster
	if err := proto.Unmarshal(body, &c); err != nil {
		return nil, err
	}
	if c.GetName() != name {
		return nil, fmt.Errorf("resource contains the cluster %q", c.GetName())
	}
	p := &clusterPart{
		base: Cluster{
			Name: name, ServiceName: name, ConnectTimeout: defaultConnectTimeout, Policy: policy(&c),
			MaxConnections: 1024, MaxPending: 1024, MaxRequests: 1024, MaxRetries: 3,
		},
		refresh: defaultRefreshRate,
	}
	if c.GetTransportSocket() != nil || len(c.GetTransportSocketMatches()) > 0 {
		return nil, errors.New("transport_socket: not supported yet, and plaintext in its place would be wrong")
	}
	if t := c.GetConnectTimeout(); t != nil {
		if p.base.ConnectTimeout = t.AsDuration(); t.CheckValid() != nil || p.base.ConnectTimeout <= 0 {
			return nil, errors.New("connect_timeout: must be above 0")
		}
	}
	if r := c.GetDnsRefreshRate(); r != nil && r.CheckValid() == nil { //nolint:staticcheck // what control planes still send
		p.refresh = max(r.AsDuration(), time.Second)
	}
	readBreakers(&p.base, c.GetCircuitBreakers())
	var err error
	if p.base.HTTP2, err = http2(&c); err != nil {
		return nil, err
	}
	return p, p.readDiscovery(&c)
}

// readDiscovery finds where the endpoints come from.
func (p *clusterPart) readDiscovery(c *clusterv3.Cluster) error {
	if c.GetClusterType() != nil {
		return fmt.Errorf("cluster_type %q is not supported", c.GetClusterType().GetName())
	}
	switch t := c.GetType(); t {
	case clusterv3.Cluster_EDS:
		p.eds = p.base.Name
		if s := c.GetEdsClusterConfig().GetServiceName(); s != "" {
			p.eds, p.base.ServiceName = s, s
		}
		if !usable(p.eds) {
			return fmt.Errorf("service_name %q would subscribe everything", p.eds)
		}
		return nil
	case clusterv3.Cluster_STATIC, clusterv3.Cluster_STRICT_DNS, clusterv3.Cluster_LOGICAL_DNS:
		var err error
		p.inline, err = targets(c.GetLoadAssignment(), t != clusterv3.Cluster_STATIC)
		if err != nil {
			return fmt.Errorf("load_assignment: %w", err)
		}
		return nil
	default:
		return fmt.Errorf("type %s is not supported", t)
	}
}

// policy is the first known entry of load_balancing_policy (gRFC A52), else lb_policy.
func policy(c *clusterv3.Cluster) Policy {
	if p := knownPolicy(c.GetLoadBalancingPolicy(), 0); p != "" {
		return p
	}
	switch c.GetLbPolicy() {
	case clusterv3.Cluster_ROUND_ROBIN:
		// The enum's zero: a list without a known entry says more than a field left out.
		if len(c.GetLoadBalancingPolicy().GetPolicies()) > 0 {
			return LeastRequest
		}
		return RoundRobin
	case clusterv3.Cluster_RANDOM:
		return Random
	case clusterv3.Cluster_RING_HASH:
		return RingHash
	case clusterv3.Cluster_MAGLEV:
		return Maglev
	default:
		return LeastRequest
	}
}

// knownPolicy is "" when the list holds nothing known. The depth bounds policies wrapped in policies.
func knownPolicy(l *clusterv3.LoadBalancingPolicy, depth int) Policy {
	if depth > 8 {
		return ""
	}
	for _, p := range l.GetPolicies() {
		config := p.GetTypedExtensionConfig().GetTypedConfig()
		switch config.GetTypeUrl() {
		case policyPackage + "least_request.v3.LeastRequest":
			return LeastRequest
		case policyPackage + "round_robin.v3.RoundRobin":
			return RoundRobin
		case policyPackage + "random.v3.Random":
			return Random
		case policyPackage + "ring_hash.v3.RingHash":
			return RingHash
		case policyPackage + "maglev.v3.Maglev":
			return Maglev
		case policyPackage + "wrr_locality.v3.WrrLocality":
			var w wrrlocalityv3.WrrLocality
			if config.UnmarshalTo(&w) != nil {
				continue
			}
			if inner := knownPolicy(w.GetEndpointPickingPolicy(), depth+1); inner != "" {
				return inner
			}
		}
	}
	return ""
}

func readBreakers(c *Cluster, b *clusterv3.CircuitBreakers) {
	for _, t := range b.GetThresholds() {
		if t.GetPriority() != corev3.RoutingPriority_DEFAULT {
			continue
		}
		if v := t.GetMaxConnections(); v != nil {
			c.MaxConnections = v.GetValue()
		}
		if v := t.GetMaxPendingRequests(); v != nil {
			c.MaxPending = v.GetValue()
		}
		if v := t.GetMaxRequests(); v != nil {
			c.MaxRequests = v.GetValue()
		}
		if v := t.GetMaxRetries(); v != nil {
			c.MaxRetries = v.GetValue()
		}
		return
	}
}

// http2 tells whether the upstream is known to speak HTTP/2; ALPN and "as downstream" are not that.
func http2(c *clusterv3.Cluster) (bool, error) {
	options := c.GetTypedExtensionProtocolOptions()[httpOptionsName]
	if options == nil {
		return c.GetHttp2ProtocolOptions() != nil, nil //nolint:staticcheck // still sent by older control planes
	}
	var o httpv3.HttpProtocolOptions
	if err := options.UnmarshalTo(&o); err != nil {
		return false, fmt.Errorf("typed_extension_protocol_options: %w", err)
	}
	return o.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil, nil
}
