package translate

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const addressTypeFQDN = "FQDN"

// endpoint is one address of a service port that may take traffic: ready, or
// serving while it terminates. Immutable once collected.
type endpoint struct {
	addr netip.AddrPort
	// ready is false for one that serves and terminates.
	ready bool
	// drained is true for one that stays out of use, even if nothing else is there.
	drained                      bool
	region, zone, node, hostname string
	forZones, forNodes           []string
}

// dnsHost is one host name of an FQDN slice.
type dnsHost struct {
	name  string
	port  uint16
	ready bool
}

// found is what a service's slices hold for one of its ports.
type found struct {
	// endpoints are sorted, IPv4 before IPv6, each address once.
	endpoints []endpoint
	// hosts are sorted, each name and port once.
	hosts []dnsHost
	// offered: slices with endpoints exist; matched: one of them has this port.
	offered, matched bool
}

// known is what is known beside a service and its slices.
type known struct {
	region  func(node string) string
	drained *drained
}

func isReady(e *mesh.SliceEndpoint) bool { return e.Ready == nil || *e.Ready }

// collect reads what the slices, sorted by name, hold for one port.
func collect(port mesh.ServicePort, all []*mesh.EndpointSlice, known known) found {
	var f found
	for _, s := range all {
		if len(s.Endpoints) == 0 {
			continue
		}
		f.offered = true
		number, ok := portIn(s, port)
		if !ok {
			continue
		}
		f.matched = true
		for i := range s.Endpoints {
			f.add(s, &s.Endpoints[i], number, known)
		}
	}
	f.endpoints = each(f.endpoints, compareEndpoints, func(a, b endpoint) bool { return a.addr == b.addr })
	f.hosts = each(f.hosts, compareHosts, func(a, b dnsHost) bool { return a.name == b.name && a.port == b.port })
	return f
}

// portIn finds the number that a service port has in a slice: the port of the
// same name, and the service's own number where the slice leaves it open.
func portIn(s *mesh.EndpointSlice, port mesh.ServicePort) (uint16, bool) {
	for _, p := range s.Ports {
		if p.Name == port.Name && p.Protocol == port.Protocol {
			if p.Port == 0 {
				return port.Port, true
			}
			return p.Port, true
		}
	}
	return 0, false
}

func (f *found) add(s *mesh.EndpointSlice, e *mesh.SliceEndpoint, port uint16, known known) {
	ready := isReady(e)
	serving := e.Serving == nil || *e.Serving
	terminating := e.Terminating != nil && *e.Terminating
	if !ready && (!serving || !terminating) {
		return
	}
	if s.AddressType == addressTypeFQDN {
		if len(e.Hosts) > 0 {
			f.hosts = append(f.hosts, dnsHost{name: e.Hosts[0], port: port, ready: ready})
		}
		return
	}
	if len(e.Addresses) == 0 {
		return
	}
	f.endpoints = append(f.endpoints, endpoint{
		addr:     netip.AddrPortFrom(e.Addresses[0], port),
		ready:    ready,
		drained:  !ready && known.drained.holds(e, port),
		region:   known.region(e.NodeName),
		zone:     e.Zone,
		node:     e.NodeName,
		hostname: e.Hostname,
		forZones: e.ForZones,
		forNodes: e.ForNodes,
	})
}

// each sorts and keeps the first of those that are the same. The sort is
// stable, so among equals the order of the slices decides.
func each[T any](all []T, compare func(a, b T) int, same func(a, b T) bool) []T {
	slices.SortStableFunc(all, compare)
	return slices.CompactFunc(all, same)
}

// compareEndpoints orders by address and port, the best condition first.
func compareEndpoints(a, b endpoint) int {
	return cmp.Or(
		cmp.Compare(a.addr.Addr().BitLen(), b.addr.Addr().BitLen()),
		a.addr.Compare(b.addr),
		readyFirst(a.ready, b.ready),
	)
}

func compareHosts(a, b dnsHost) int {
	return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.port, b.port), readyFirst(a.ready, b.ready))
}

func readyFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// usableHosts are the ready host names, or all while none is ready.
func usableHosts(all []dnsHost) []dnsHost {
	isReady := func(h dnsHost) bool { return h.ready }
	if !slices.ContainsFunc(all, isReady) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(h dnsHost) bool { return !h.ready })
}
