package dataplane

import (
	"cmp"
	"context"
	"net"
	"net/netip"

	"github.com/freshmesh/freshmesh/pkg/dataplane/capture"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/limit"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxy"
)

// limits are what all listeners of traffic share.
type limits struct {
	connections *limit.Connections
	memory      *limit.Memory
	requests    *proxy.Limits
}

func (p *Proxy) limit() error {
	l := p.cfg.Limits
	memory := &limit.Memory{Limit: l.Memory}
	requests, err := proxy.NewLimits(proxy.LimitsConfig{
		HeaderCount: l.HeaderCount, HeaderBytes: l.HeaderBytes, HeaderTime: l.HeaderTime, BodyIdle: l.BodyIdle, WriteIdle: l.WriteIdle, Overloaded: memory.Over,
	}, p.cfg.Registry)
	if err != nil {
		return err
	}
	p.limits = &limits{memory: memory, requests: requests, connections: &limit.Connections{Max: l.Connections, Refused: requests.Count}}
	return nil
}

// listenCaptured opens the outbound and the inbound listener. The first also
// serves clients that know their proxy.
func (p *Proxy) listenCaptured(shared proxy.Config) error {
	captured := proxy.Captured{
		Config: shared, Opaque: portSet(p.cfg.OpaquePorts), Skip: portSet(p.cfg.SkipPorts),
		RefuseUnknown: p.cfg.RefuseUnknown, Own: p.owns,
	}
	if err := p.capture("outbound", p.cfg.OutboundAddress, captured); err != nil {
		return err
	}
	if p.cfg.InboundAddress == "" {
		return nil
	}
	p.inbound = endpoints.New(endpoints.Config{
		Reporter: proxy.Quiet{}, FailFast: cmp.Or(p.cfg.FailFastInbound, endpoints.InboundFailFast), Drain: p.cfg.DrainTime,
		Ejected: shared.Metrics.Ejected, Panicked: shared.Metrics.Panicked, Pulse: &p.pulse, Logger: p.log,
	})
	captured.Inbound, captured.Endpoints, captured.Discovery = true, p.inbound, &proxy.Inbound{Set: p.inbound}
	return p.capture("inbound", p.cfg.InboundAddress, captured)
}

//nolint:contextcheck // the context is for looking up names, and there is none to look up
func (p *Proxy) capture(name, address string, c proxy.Captured) error {
	if address == "" {
		return nil
	}
	l, err := capture.Listen(context.Background(), address, p.cfg.Transparent)
	if err != nil {
		return openError(address, name, err)
	}
	p.own = append(p.own, l.Addr())
	p.take(name, "http", l, &c)
	return nil
}

// owns tells whether an address is a listener of this proxy. It looks at each
// call: addresses of the host come and go.
func (p *Proxy) owns(a netip.AddrPort) bool {
	for _, l := range p.own {
		own, ok := l.(*net.TCPAddr)
		if !ok || own.AddrPort().Port() != a.Port() {
			continue
		}
		addr := own.AddrPort().Addr().Unmap()
		if addr == a.Addr() || a.Addr().IsLoopback() || addr.IsUnspecified() && isLocal(a.Addr()) {
			return true
		}
	}
	return false
}

func isLocal(a netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, x := range all {
		if n, ok := x.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == a {
				return true
			}
		}
	}
	return false
}

func (p *Proxy) closeSets() {
	for _, s := range []*endpoints.Set{p.set, p.inbound} {
		if s != nil {
			s.Close()
		}
	}
}

func portSet(ports []uint16) map[uint16]bool {
	set := make(map[uint16]bool, len(ports))
	for _, p := range ports {
		set[p] = true
	}
	return set
}
