package drain

import (
	"fmt"
	"net/netip"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Types are the resource types that name endpoints: assignments, and clusters
// that have their assignment inside them.
var Types = [...]mesh.Type{mesh.TypeEndpoint, mesh.TypeCluster}

// Listing is the endpoints of one form of a resource: address → whether it may
// be sent requests. Only DRAINING ones may not; of an address that is there twice, the usable one counts.
type Listing map[netip.AddrPort]bool

// inlineAssignment is the number of Cluster.load_assignment.
const inlineAssignment = 33

// List reads a form of a resource, wherever endpoints may stand in it: one that is
// overlooked would count as drained. (Package history reads assignments for
// people, and by bytes, as it compares each with the one before.) Names instead of addresses are left out: who
// resolves them is not told. A type that names no endpoints gives nil.
func List(t mesh.Type, body []byte) (Listing, error) {
	switch t {
	case mesh.TypeEndpoint:
		var a endpointv3.ClusterLoadAssignment
		if err := proto.Unmarshal(body, &a); err != nil {
			return nil, fmt.Errorf("read assignment: %w", err)
		}
		return listed(&a), nil
	case mesh.TypeCluster:
		if !hasField(body, inlineAssignment) {
			return nil, nil // as all EDS clusters are: not worth a whole decoding
		}
		var c clusterv3.Cluster
		if err := proto.Unmarshal(body, &c); err != nil {
			return nil, fmt.Errorf("read cluster: %w", err)
		}
		return listed(c.GetLoadAssignment()), nil
	default:
		return nil, nil
	}
}

func hasField(body []byte, field protowire.Number) bool {
	for len(body) > 0 {
		number, kind, n := protowire.ConsumeTag(body)
		if n < 0 || number == field {
			return true // broken bytes are for the decoder to refuse
		}
		m := protowire.ConsumeFieldValue(number, kind, body[n:])
		if m < 0 {
			return true
		}
		body = body[n+m:]
	}
	return false
}

func listed(a *endpointv3.ClusterLoadAssignment) Listing {
	out := make(Listing)
	add := func(address *corev3.Address, usable bool) {
		s := address.GetSocketAddress()
		if ip, err := netip.ParseAddr(s.GetAddress()); err == nil && s.GetPortValue() <= 1<<16-1 {
			at := netip.AddrPortFrom(ip.Unmap(), uint16(s.GetPortValue()))
			out[at] = out[at] || usable
		}
	}
	endpoint := func(e *endpointv3.Endpoint, usable bool) {
		add(e.GetAddress(), usable)
		for _, more := range e.GetAdditionalAddresses() {
			add(more.GetAddress(), usable)
		}
	}
	for _, l := range a.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			usable := e.GetHealthStatus() != corev3.HealthStatus_DRAINING
			if name := e.GetEndpointName(); name != "" {
				endpoint(a.GetNamedEndpoints()[name], usable)
				continue
			}
			endpoint(e.GetEndpoint(), usable)
		}
	}
	return out
}
