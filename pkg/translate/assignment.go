package translate

import (
	"cmp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// assignmentOf makes the assignment of a group, shaped if its endpoints ask for it.
func assignmentOf(g *group) made {
	r := made{Resource: mesh.Resource{
		Type: mesh.TypeEndpoint,
		Name: g.name,
		Body: marshal(assignment(g.name, g.place(mesh.View{}))),
	}}
	if r.ShapedBy = g.shapedBy(); r.ShapedBy != 0 {
		r.shaping = g.shaping()
		r.Shape = func(v mesh.View) []byte { return marshal(assignment(g.name, g.place(v))) }
	}
	return r
}

// assignment gathers endpoints by priority and locality. gRPC clients want the
// locality set, of weight 1 or more, once per priority, and no gap in the
// priorities (gRFC A27); so priorities are the families that are present.
func assignment(name string, endpoints []placed) *endpointv3.ClusterLoadAssignment {
	slices.SortStableFunc(endpoints, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.family, b.family), strings.Compare(a.region, b.region), strings.Compare(a.zone, b.zone))
	})
	cla := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	var group *endpointv3.LocalityLbEndpoints
	var priority uint32
	for i := range endpoints {
		e := &endpoints[i]
		if i > 0 && e.family != endpoints[i-1].family {
			priority++
		}
		if i == 0 || e.family != endpoints[i-1].family || e.region != endpoints[i-1].region || e.zone != endpoints[i-1].zone {
			group = &endpointv3.LocalityLbEndpoints{
				Locality: &corev3.Locality{Region: e.region, Zone: e.zone},
				Priority: priority,
			}
			cla.Endpoints = append(cla.Endpoints, group)
		}
		group.LbEndpoints = append(group.LbEndpoints, lbEndpoint(e))
	}
	for _, l := range cla.GetEndpoints() {
		// Localities of one priority share the load by size: gRPC divides a
		// locality's weight by its endpoints, draining ones included (gRFC A113).
		l.LoadBalancingWeight = wrapperspb.UInt32(uint32(len(l.GetLbEndpoints())))
	}
	return cla
}

func lbEndpoint(e *placed) *endpointv3.LbEndpoint {
	status := corev3.HealthStatus_HEALTHY
	if e.draining {
		status = corev3.HealthStatus_DRAINING
	}
	return &endpointv3.LbEndpoint{
		HealthStatus: status,
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address:  socketAddress(e.addr.Addr().String(), e.addr.Port()),
			Hostname: e.hostname,
		}},
	}
}

func socketAddress(host string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}
