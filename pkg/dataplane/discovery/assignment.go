package discovery

import (
	"errors"
	"fmt"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// maxPriority is the bound of LocalityLbEndpoints.priority.
const maxPriority = 128

// target is an endpoint, or a host name whose addresses are to become endpoints.
type target struct {
	// host is "" for an endpoint that has its address already.
	host string
	// endpoint lacks only the IP when host is set.
	endpoint mesh.Endpoint
}

// decodeAssignment gives the endpoints, and the overprovisioning factor in percent.
func decodeAssignment(name string, body []byte) ([]mesh.Endpoint, uint32, error) {
	var a endpointv3.ClusterLoadAssignment
	if err := proto.Unmarshal(body, &a); err != nil {
		return nil, 0, err
	}
	if a.GetClusterName() != name {
		return nil, 0, fmt.Errorf("resource contains the assignment of %q", a.GetClusterName())
	}
	factor, err := overprovisioning(&a)
	if err != nil {
		return nil, 0, err
	}
	ts, err := targets(&a, false)
	if err != nil {
		return nil, 0, err
	}
	endpoints := make([]mesh.Endpoint, 0, len(ts))
	for _, t := range ts {
		endpoints = append(endpoints, t.endpoint)
	}
	return unique(endpoints), factor, nil
}

// overprovisioning is the policy's factor in percent, or the default.
func overprovisioning(a *endpointv3.ClusterLoadAssignment) (uint32, error) {
	f := a.GetPolicy().GetOverprovisioningFactor()
	switch {
	case f == nil:
		return DefaultBalancing.Overprovisioning, nil
	case f.GetValue() == 0:
		return 0, errors.New("policy.overprovisioning_factor: must be above 0")
	}
	return f.GetValue(), nil
}

// unique drops all but the first of each key, in place.
func unique(endpoints []mesh.Endpoint) []mesh.Endpoint {
	seen := make(map[mesh.EndpointKey]bool, len(endpoints))
	kept := endpoints[:0]
	for _, e := range endpoints {
		if !seen[e.EndpointKey] {
			seen[e.EndpointKey] = true
			kept = append(kept, e)
		}
	}
	return kept
}

// targets reads an assignment's localities in order. Host names are errors unless names is set.
func targets(a *endpointv3.ClusterLoadAssignment, names bool) ([]target, error) {
	var all []target
	for i, l := range a.GetEndpoints() {
		if l.GetPriority() > maxPriority {
			return nil, fmt.Errorf("endpoints[%d]: priority %d is above %d", i, l.GetPriority(), maxPriority)
		}
		if l.GetLbConfig() != nil {
			return nil, fmt.Errorf("endpoints[%d]: endpoints by reference are not supported", i)
		}
		for j, lb := range l.GetLbEndpoints() {
			t, err := readTarget(lb, names)
			if err != nil {
				return nil, fmt.Errorf("endpoints[%d].lb_endpoints[%d]: %w", i, j, err)
			}
			t.endpoint.Priority = l.GetPriority()
			where := l.GetLocality()
			t.endpoint.Region, t.endpoint.Zone, t.endpoint.SubZone = where.GetRegion(), where.GetZone(), where.GetSubZone()
			t.endpoint.LocalityWeight = l.GetLoadBalancingWeight().GetValue()
			all = append(all, t)
		}
	}
	return all, nil
}

func readTarget(lb *endpointv3.LbEndpoint, names bool) (target, error) {
	if lb.GetEndpoint() == nil {
		return target{}, errors.New("no endpoint")
	}
	socket := lb.GetEndpoint().GetAddress().GetSocketAddress()
	port, ok := socket.GetPortSpecifier().(*corev3.SocketAddress_PortValue)
	if !ok || port.PortValue == 0 || port.PortValue > 65535 {
		return target{}, errors.New("address: no socket address with a port number")
	}
	t := target{endpoint: mesh.Endpoint{
		Health:   health(lb.GetHealthStatus()),
		Weight:   max(lb.GetLoadBalancingWeight().GetValue(), 1),
		Hostname: lb.GetEndpoint().GetHostname(),
	}}
	ip, err := netip.ParseAddr(socket.GetAddress())
	switch {
	case err == nil && ip.Zone() == "":
		ip = ip.Unmap()
	case err == nil || !names || socket.GetAddress() == "":
		return target{}, fmt.Errorf("address %q: not an IP address", socket.GetAddress())
	default:
		ip, t.host = netip.Addr{}, socket.GetAddress()
		if t.endpoint.Hostname == "" {
			t.endpoint.Hostname = t.host
		}
	}
	t.endpoint.Address = netip.AddrPortFrom(ip, uint16(port.PortValue))
	return t, nil
}

func health(s corev3.HealthStatus) mesh.Health {
	switch s {
	case corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_TIMEOUT:
		return mesh.Unhealthy
	case corev3.HealthStatus_DRAINING:
		return mesh.Draining
	case corev3.HealthStatus_DEGRADED:
		return mesh.Degraded
	default:
		return mesh.Healthy
	}
}
