package xdstest

import (
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Resource makes a small resource of the given type and name. Its label goes
// into a field that does not matter otherwise, so that a test tells contents
// apart at sight: "v1" and "v2" differ in their bytes, and v1 has equal bytes
// each time. A cluster is followed by the assignment of its name. For a type
// that the mesh does not generate the body is a StringValue "name=label".
func Resource(t mesh.Type, name, label string) mesh.Resource {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(resourceMessage(t, name, label))
	if err != nil {
		panic(fmt.Sprintf("marshal a message made here: %v", err))
	}
	r := mesh.Resource{Type: t, Name: name, Body: body}
	if t == mesh.TypeCluster {
		r.FollowedBy = []mesh.ResourceName{{Type: mesh.TypeEndpoint, Name: name}}
	}
	return r
}

func resourceMessage(t mesh.Type, name, label string) proto.Message {
	switch t {
	case mesh.TypeCluster:
		return &clusterv3.Cluster{Name: name, AltStatName: label}
	case mesh.TypeEndpoint:
		return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			Locality: &corev3.Locality{Zone: label},
		}}}
	case mesh.TypeListener:
		return &listenerv3.Listener{Name: name, StatPrefix: label}
	case mesh.TypeRoute:
		return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{Name: label}}}
	}
	return wrapperspb.String(name + "=" + label)
}

// Describe is the inverse of Resource: the name and the label of a body. A
// body that Resource did not make has its name, and whatever stands in the
// label's field. The error is for a body that does not unmarshal as its type.
func Describe(t mesh.Type, body []byte) (name, label string, err error) {
	switch m := resourceMessage(t, "", "").(type) {
	case *clusterv3.Cluster:
		err = proto.Unmarshal(body, m)
		return m.GetName(), m.GetAltStatName(), err
	case *endpointv3.ClusterLoadAssignment:
		if err = proto.Unmarshal(body, m); len(m.GetEndpoints()) > 0 {
			label = m.GetEndpoints()[0].GetLocality().GetZone()
		}
		return m.GetClusterName(), label, err
	case *listenerv3.Listener:
		err = proto.Unmarshal(body, m)
		return m.GetName(), m.GetStatPrefix(), err
	case *routev3.RouteConfiguration:
		if err = proto.Unmarshal(body, m); len(m.GetVirtualHosts()) > 0 {
			label = m.GetVirtualHosts()[0].GetName()
		}
		return m.GetName(), label, err
	case *wrapperspb.StringValue:
		err = proto.Unmarshal(body, m)
		name, label, _ = strings.Cut(m.GetValue(), "=")
		return name, label, err
	}
	panic("resourceMessage makes only the types above")
}
