package model

import (
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	http_connection_managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/test/model/oracle"
)

func decodeSotW(m *discoveryv3.DiscoveryResponse, err error) (response, error) {
	if err != nil {
		return response{}, err
	}
	out := newResponse(m.GetTypeUrl(), m.GetNonce())
	for _, a := range m.GetResources() {
		name, content, err := read(out.Type, a.GetValue())
		if err != nil {
			return response{}, err
		}
		out.Resources[name] = content
	}
	return out, nil
}

func decodeDelta(m *discoveryv3.DeltaDiscoveryResponse, err error) (response, error) {
	if err != nil {
		return response{}, err
	}
	out := newResponse(m.GetTypeUrl(), m.GetNonce())
	out.Removed = m.GetRemovedResources()
	for _, x := range m.GetResources() {
		name, content, err := read(out.Type, x.GetResource().GetValue())
		if err != nil || name != x.GetName() {
			return response{}, fmt.Errorf("resource %s is named %s: %w", x.GetName(), name, err)
		}
		out.Resources[name], out.versions[name] = content, x.GetVersion()
	}
	return out, nil
}

func newResponse(typeURL, nonce string) response {
	return response{
		Response: &oracle.Response{Type: mesh.Type(typeURL).Short(), Nonce: nonce, Resources: map[string]string{}},
		versions: map[string]string{},
	}
}

// read gives the name of a resource, and its content in the oracle's words.
func read(typ string, body []byte) (name, content string, err error) {
	switch typ {
	case oracle.CDS:
		var m clusterv3.Cluster
		err = proto.Unmarshal(body, &m)
		return m.GetName(), "policy=" + policyOf(&m) + " timeout=" + m.GetConnectTimeout().AsDuration().String(), err
	case oracle.EDS:
		var m endpointv3.ClusterLoadAssignment
		err = proto.Unmarshal(body, &m)
		return m.GetClusterName(), assignmentOf(&m), err
	case oracle.LDS:
		var m listenerv3.Listener
		var manager http_connection_managerv3.HttpConnectionManager
		if err = proto.Unmarshal(body, &m); err == nil {
			err = m.GetApiListener().GetApiListener().UnmarshalTo(&manager)
		}
		return m.GetName(), "to=" + manager.GetRds().GetRouteConfigName(), err
	case oracle.RDS:
		var m routev3.RouteConfiguration
		if err = proto.Unmarshal(body, &m); err != nil || len(m.GetVirtualHosts()) != 1 {
			return m.GetName(), "", fmt.Errorf("%d virtual hosts: %w", len(m.GetVirtualHosts()), err)
		}
		action := m.GetVirtualHosts()[0].GetRoutes()[0].GetRoute()
		content = "to=" + action.GetCluster()
		if len(action.GetHashPolicy()) > 0 {
			content += " hashed"
		}
		return m.GetName(), content, nil
	}
	return "", "", fmt.Errorf("type %q", typ)
}

func policyOf(m *clusterv3.Cluster) string {
	name := m.GetLoadBalancingPolicy().GetPolicies()[0].GetTypedExtensionConfig().GetName()
	return strings.ReplaceAll(name[strings.LastIndex(name, ".")+1:], "_", "-")
}

func assignmentOf(m *endpointv3.ClusterLoadAssignment) string {
	var lines []string
	for _, l := range m.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			at := e.GetEndpoint().GetAddress().GetSocketAddress()
			lines = append(lines, fmt.Sprintf("%s:%d %s %s %s", at.GetAddress(), at.GetPortValue(), l.GetLocality().GetZone(),
				e.GetHealthStatus(), e.GetEndpoint().GetHostname()))
		}
	}
	return oracle.Assignment(lines)
}
