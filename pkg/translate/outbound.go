package translate

import (
	"bytes"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// OutboundRoute is the name of the route table over all services, and of the
// socket listener that uses it.
const OutboundRoute = "outbound"

// hosts are a service's virtual hosts in the outbound table, as serialised
// route configurations that hold nothing else. A repeated field may be split
// over concatenated messages (protobuf encoding, "Last One Wins"), so the table
// is its name followed by the hosts of every service.
type hosts struct {
	service mesh.Key
	// targets are what they lead to.
	targets []target
	// everywhere is for all nodes; own is for nodes of the service's namespace, beside the other.
	everywhere, own []byte
}

// hostsOf makes the virtual hosts of a service's HTTP targets.
func hostsOf(service mesh.Key, targets []target, s *settings) *hosts {
	everywhere, own := &routev3.RouteConfiguration{}, &routev3.RouteConfiguration{}
	for _, t := range targets {
		name := t.name()
		everywhere.VirtualHosts = append(everywhere.VirtualHosts, virtualHost(name, t.qualified(false), name, s))
		if t.pod {
			continue
		}
		short := t.own(false)
		own.VirtualHosts = append(own.VirtualHosts, virtualHost(short[len(short)-1], short, name, s))
	}
	return &hosts{service: service, targets: targets, everywhere: marshal(everywhere), own: marshal(own)}
}

func (h *hosts) equal(o *hosts) bool {
	return bytes.Equal(h.everywhere, o.everywhere) && bytes.Equal(h.own, o.own)
}

// outbound is the table. It is put together again only after a service's hosts changed.
type outbound struct {
	// parts are sorted by service, each once.
	parts []*hosts
	// made is false until the table was made once: it exists even while it is empty.
	made, dirty bool
	// cause is the last change that made it dirty.
	cause mesh.Cause
}

// put sets the hosts of a service; nil means that it has none.
func (o *outbound) put(service mesh.Key, h *hosts, cause mesh.Cause) {
	i, found := slices.BinarySearchFunc(o.parts, service, func(p *hosts, k mesh.Key) int { return p.service.Compare(k) })
	switch {
	case found && h != nil && o.parts[i].equal(h), !found && h == nil:
		return
	case found && h == nil:
		o.parts = slices.Delete(o.parts, i, i+1)
	case found:
		o.parts[i] = h
	default:
		o.parts = slices.Insert(o.parts, i, h)
	}
	o.dirty, o.cause = true, cause
}

// resource gives the table if it changed since the last call.
func (o *outbound) resource() (mesh.Resource, bool) {
	if o.made && !o.dirty {
		return mesh.Resource{}, false
	}
	o.made, o.dirty = true, false
	parts := slices.Clone(o.parts)
	body := marshal(&routev3.RouteConfiguration{Name: OutboundRoute})
	size := 0
	for _, h := range parts {
		size += len(h.everywhere)
	}
	body = slices.Grow(body, size)
	for _, h := range parts {
		body = append(body, h.everywhere...)
	}
	return mesh.Resource{
		Type:     mesh.TypeRoute,
		Name:     OutboundRoute,
		Body:     body,
		For:      mesh.ListenersSocket,
		ShapedBy: mesh.ByNamespace,
		Shape:    func(v mesh.View) []byte { return withOwn(body, parts, v.Namespace) },
		Cause:    o.cause,
	}, true
}

// withOwn adds the short names of one namespace.
func withOwn(body []byte, parts []*hosts, namespace string) []byte {
	out := slices.Clip(body)
	for _, h := range parts {
		if h.service.Namespace == namespace {
			out = append(out, h.own...)
		}
	}
	return out
}
