package discovery

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// applied is an Applier that keeps what is in effect.
type applied struct {
	mu       sync.Mutex
	clusters map[string]*Cluster
	calls    int
	// refuse gives the verdict on a cluster; nil takes everything.
	refuse func(*Cluster) error
}

func newApplied() *applied { return &applied{clusters: map[string]*Cluster{}} }

func (a *applied) Apply(c *Cluster) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if a.refuse != nil {
		if err := a.refuse(c); err != nil {
			return err
		}
	}
	a.clusters[c.Name] = c
	return nil
}

func (a *applied) Remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.clusters, name)
}

func (a *applied) get(name string) *Cluster {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.clusters[name]
}

func (a *applied) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.clusters))
}

func anyOf(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// cds is an EDS cluster; service "" leaves service_name out.
func cds(name, version, service string) *discoveryv3.Resource {
	c := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
	}
	if service != "" {
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: service}
	}
	return &discoveryv3.Resource{Name: name, Version: version, Resource: anyOf(c)}
}

// badCluster does not decode.
func badCluster(name string) *discoveryv3.Resource {
	r := cds(name, "bad", "")
	r.Resource.Value = []byte{0xff}
	return r
}

// dns is a STRICT_DNS cluster of one host and port 80.
func dns(name, version, host string) *discoveryv3.Resource {
	c := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS},
		LoadAssignment:       assignment(name, host),
	}
	return &discoveryv3.Resource{Name: name, Version: version, Resource: anyOf(c)}
}

// eds is an assignment with each host at port 80.
func eds(name, version string, hosts ...string) *discoveryv3.Resource {
	return &discoveryv3.Resource{Name: name, Version: version, Resource: anyOf(assignment(name, hosts...))}
}

func assignment(name string, hosts ...string) *endpointv3.ClusterLoadAssignment {
	l := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Region: "r", Zone: "z"}}
	for _, h := range hosts {
		l.LbEndpoints = append(l.LbEndpoints, lbEndpoint(h, 80))
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{l}}
}

func lbEndpoint(host string, port uint32) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		}}},
	}}}
}

// hostsOf are the endpoint addresses, in order; nil for a nil cluster.
func hostsOf(c *Cluster) []string {
	if c == nil {
		return nil
	}
	hosts := []string{}
	for _, e := range c.Endpoints {
		hosts = append(hosts, e.Address.Addr().String())
	}
	return hosts
}

func key(host string) mesh.EndpointKey {
	return mesh.EndpointKey{Address: netip.AddrPortFrom(netip.MustParseAddr(host), 80)}
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
