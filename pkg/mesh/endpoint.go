package mesh

import "net/netip"

// Identity is a SPIFFE ID; "" stands for none known.
type Identity string

// Health is an endpoint's health as EDS gives it (envoy.config.core.v3.HealthStatus).
type Health uint8

// The healths. Unset in EDS counts as Healthy.
const (
	Healthy Health = iota
	Degraded
	Draining
	Unhealthy
)

// String gives "HEALTHY", "DEGRADED", "DRAINING" or "UNHEALTHY".
func (h Health) String() string {
	switch h {
	case Healthy:
		return "HEALTHY"
	case Degraded:
		return "DEGRADED"
	case Draining:
		return "DRAINING"
	case Unhealthy:
		return "UNHEALTHY"
	}
	return "UNKNOWN"
}

// EndpointKey tells endpoints apart: the same address under another identity is another endpoint.
type EndpointKey struct {
	Address  netip.AddrPort
	Identity Identity
}

// Endpoint is one address of a cluster.
type Endpoint struct {
	EndpointKey
	Health Health
	// Weight is at least 1.
	Weight uint32
	// Priority is 0 for the first choice.
	Priority     uint32
	Region, Zone string
	// SubZone is the finest part of a locality; most clusters have none.
	SubZone string
	// LocalityWeight is the weight of the locality among those of its priority
	// (load_balancing_weight of LocalityLbEndpoints); 0 for none given.
	LocalityWeight uint32
	Hostname       string
}
