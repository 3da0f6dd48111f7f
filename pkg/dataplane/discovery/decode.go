package discovery

import (
	"errors"
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	httpOptionsName = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

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
	// overprovisioning belongs to endpoints, in percent.
	overprovisioning uint32
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
		d.endpoints, d.overprovisioning, err = decodeAssignment(name, body.GetValue())
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
			Name: name, ServiceName: name, ConnectTimeout: defaultConnectTimeout,
			Breakers: readBreakers(c.GetCircuitBreakers()),
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
	for _, read := range []func(*clusterv3.Cluster) error{p.readHTTP2, p.readBalancing, p.readOutlier, p.readHealthChecks, p.readDiscovery} {
		if err := read(&c); err != nil {
			return nil, err
		}
	}
	p.readOptions(&c)
	return p, nil
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
		if err == nil {
			p.base.Balancing.Overprovisioning, err = overprovisioning(c.GetLoadAssignment())
		}
		if err != nil {
			return fmt.Errorf("load_assignment: %w", err)
		}
		return nil
	default:
		return fmt.Errorf("type %s is not supported", t)
	}
}

// readHTTP2 finds whether the upstream is known to speak HTTP/2; ALPN and "as downstream" are not that.
func (p *clusterPart) readHTTP2(c *clusterv3.Cluster) error {
	options := c.GetTypedExtensionProtocolOptions()[httpOptionsName]
	if options == nil {
		p.base.HTTP2 = c.GetHttp2ProtocolOptions() != nil //nolint:staticcheck // still sent by older control planes
		return nil
	}
	var o httpv3.HttpProtocolOptions
	if err := options.UnmarshalTo(&o); err != nil {
		return fmt.Errorf("typed_extension_protocol_options: %w", err)
	}
	p.base.HTTP2 = o.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil
	return nil
}

// readOptions reads what is ours in the cluster's metadata; a field of another type counts as not there.
func (p *clusterPart) readOptions(c *clusterv3.Cluster) {
	fields := c.GetMetadata().GetFilterMetadata()[mesh.MetadataNamespace].GetFields()
	p.base.CloseOnEjection = fields[mesh.CloseOnEjectionKey].GetBoolValue()
	p.base.CloseOnOverload = fields[mesh.CloseOnOverloadKey].GetBoolValue()
	if d, ok := durationText(fields[mesh.DrainKey]); ok {
		p.base.Drain = &d
	}
	p.base.Timeout, _ = durationText(fields[mesh.TimeoutKey])
	p.base.Retry = readRetry(fields[mesh.RetryKey].GetStructValue())
	p.base.Opaque = fields[mesh.OpaqueKey].GetBoolValue()
	p.base.Skip = fields[mesh.SkipKey].GetBoolValue()
	p.base.ProxyHeader = fields[mesh.ProxyProtocolKey].GetBoolValue()
	p.base.Alias = fields[mesh.AliasKey].GetStringValue()
}
