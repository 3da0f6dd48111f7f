package redirect

import (
	"errors"
	"fmt"
	"slices"
)

// table is the name of ours, in the family inet.
const table = "freshmesh"

// Rules say what is led to the proxy.
type Rules struct {
	// OutboundPort and InboundPort are those of the proxy's listeners, on all addresses.
	OutboundPort, InboundPort uint16
	// HealthPort is kubelet's, which inbound connections reach directly.
	HealthPort uint16
	// ProxyUID is the proxy's user. SkipUIDs are others whose connections are left alone.
	ProxyUID uint32
	SkipUIDs []uint32
	// SkipOutboundPorts and SkipInboundPorts are destination ports that are left alone.
	SkipOutboundPorts, SkipInboundPorts []uint16
}

// DefaultRules are for the proxy that is injected into pods.
func DefaultRules() Rules {
	return Rules{OutboundPort: 15001, InboundPort: 15006, HealthPort: 15021, ProxyUID: 15000}
}

// ErrUnsupported says that this system has no nftables.
var ErrUnsupported = errors.New("only Linux can redirect")

func (r Rules) validate() error {
	if r.OutboundPort == 0 || r.InboundPort == 0 || r.OutboundPort == r.InboundPort {
		return fmt.Errorf("outbound port %d and inbound port %d: want two ports", r.OutboundPort, r.InboundPort)
	}
	if slices.Contains(r.SkipInboundPorts, r.OutboundPort) || r.HealthPort == r.OutboundPort {
		return fmt.Errorf("inbound port %d cannot be skipped: the outbound listener takes requests to anywhere", r.OutboundPort)
	}
	if r.ProxyUID == 0 {
		return errors.New("the proxy's user cannot be root: what root sends is to be redirected")
	}
	return nil
}
