package translate

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// offers are the clusters "IP:PORT" that one service gives, by name.
type offers map[string]made

// addresses are the offers of all services. Of several services with one
// address, the one whose key sorts first is published.
type addresses struct {
	// offered is name → service → its offer.
	offered map[string]map[mesh.Key]made
	// published is what readers have, by name.
	published map[string]made
	// touched are the names to look at when all services of an update are done,
	// since an address can move between two of them.
	touched map[string]mesh.Cause
}

func newAddresses() addresses {
	return addresses{offered: make(map[string]map[mesh.Key]made), published: make(map[string]made), touched: make(map[string]mesh.Cause)}
}

// replace puts a service's offers in the place of its old ones.
func (a *addresses) replace(key mesh.Key, old, now offers, cause mesh.Cause) {
	for name := range old {
		if _, still := now[name]; still {
			continue
		}
		a.touched[name] = cause
		if delete(a.offered[name], key); len(a.offered[name]) == 0 {
			delete(a.offered, name)
		}
	}
	for name, offer := range now {
		if held, ok := old[name]; ok && held.equal(&offer) {
			continue
		}
		a.touched[name] = cause
		if a.offered[name] == nil {
			a.offered[name] = make(map[mesh.Key]made, 1)
		}
		a.offered[name][key] = offer
	}
}

// publish puts what has changed for readers since the last call into u.
func (a *addresses) publish(u *mesh.Update) {
	for name, cause := range a.touched {
		before, was := a.published[name]
		after, is := a.first(name)
		switch {
		case is && (!was || !before.equal(&after)):
			after.Cause = cause
			a.published[name] = after
			u.Put = append(u.Put, after.Resource)
		case was && !is:
			delete(a.published, name)
			u.Remove = append(u.Remove, mesh.Removal{ResourceName: before.name(), Cause: cause})
		}
	}
	clear(a.touched)
}

func (a *addresses) first(name string) (made, bool) {
	all := a.offered[name]
	if len(all) == 0 {
		return made{}, false
	}
	return all[slices.MinFunc(slices.Collect(maps.Keys(all)), mesh.Key.Compare)], true
}

// virtualAddresses offers the service's cluster IPs with one port.
func (t *translation) virtualAddresses(to target, p mesh.ServicePort) {
	if t.service.Headless || t.service.Type == typeExternalName {
		return
	}
	spoken := protocolOf(p, &t.settings)
	for _, ip := range t.service.ClusterIPs {
		name := netip.AddrPortFrom(ip, p.Port).String()
		t.offer(name, "alias "+to.name()+spoken.key(), func() *clusterv3.Cluster {
			c := t.addressCluster(name, p, spoken)
			// No endpoints: whoever reads the alias goes on to that cluster, which may be one of DNS.
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
			c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: name}
			if c.GetMetadata() == nil {
				c.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{mesh.MetadataNamespace: {Fields: map[string]*structpb.Value{}}}}
			}
			c.Metadata.FilterMetadata[mesh.MetadataNamespace].Fields[mesh.AliasKey] = structpb.NewStringValue(to.name())
			return c
		})
	}
}

// podAddresses offers every address of a headless service's slices with one
// port, whatever its conditions: its clients are given these by DNS.
func (t *translation) podAddresses(p mesh.ServicePort) {
	if !t.service.Headless {
		return
	}
	spoken := protocolOf(p, &t.settings)
	for _, s := range t.slices {
		number, ok := portIn(s, p)
		if !ok {
			continue
		}
		for i := range s.Endpoints {
			if len(s.Endpoints[i].Addresses) == 0 {
				continue
			}
			address := netip.AddrPortFrom(s.Endpoints[i].Addresses[0], number)
			name := address.String()
			if _, taken := t.addresses[name]; taken {
				continue
			}
			t.offer(name, "pod"+spoken.key(), func() *clusterv3.Cluster {
				c := t.addressCluster(name, p, spoken)
				c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
				c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
					LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
						Endpoint: &endpointv3.Endpoint{Address: socketAddress(address.Addr().String(), address.Port())},
					}}},
				}}}
				return c
			})
		}
	}
}

// offer takes over what the same form of the service offered before under the same shaping.
func (t *translation) offer(name, shaping string, form func() *clusterv3.Cluster) {
	if was, ok := t.old.addresses[name]; ok && was.shaping == shaping {
		t.addresses[name] = was
		return
	}
	t.addresses[name] = made{shaping: shaping, Resource: mesh.Resource{
		Type: mesh.TypeCluster, Name: name, Body: marshal(form()), For: mesh.ListenersAPI,
	}}
}

// addressCluster is what both kinds have in common. Health is looked after
// under the service's own name.
func (t *translation) addressCluster(name string, p mesh.ServicePort, spoken protocol) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name: name, ConnectTimeout: durationpb.New(t.settings.connectTimeout),
		Metadata: t.settings.metadata(p.Port, spoken),
	}
	if spoken.http2 {
		c.TypedExtensionProtocolOptions = http2Upstream
	}
	return c
}

func (p protocol) key() string {
	return " " + strconv.FormatBool(p.http) + " " + strconv.FormatBool(p.http2)
}
