package translate

import (
	"bytes"
	"maps"
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
	namespace string
	// everywhere is for all nodes; own is for nodes of the service's namespace, beside the other.
	everywhere, own []byte
}

// hostsOf makes the virtual hosts of a service's HTTP targets.
func hostsOf(namespace string, targets []target, s *settings) *hosts {
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
	return &hosts{namespace: namespace, everywhere: marshal(everywhere), own: marshal(own)}
}

func (h *hosts) equal(o *hosts) bool {
	return bytes.Equal(h.everywhere, o.everywhere) && bytes.Equal(h.own, o.own)
}

// outbound is the table. It is put together again only after a service's hosts changed.
type outbound struct {
	byService map[mesh.Key]*hosts
	// made is false until the table was made once: it exists even while it is empty.
	made, dirty bool
	// cause is the last change that made it dirty.
	cause mesh.Cause
}

func (o *outbound) put(service mesh.Key, h *hosts, cause mesh.Cause) {
	if old := o.byService[service]; old != nil && old.equal(h) {
		return
	}
	o.byService[service] = h
	o.dirty, o.cause = true, cause
}

func (o *outbound) remove(service mesh.Key, cause mesh.Cause) {
	if _, ok := o.byService[service]; ok {
		delete(o.byService, service)
		o.dirty, o.cause = true, cause
	}
}

// resource gives the table if it changed since the last call.
func (o *outbound) resource() (mesh.Resource, bool) {
	if o.made && !o.dirty {
		return mesh.Resource{}, false
	}
	o.made, o.dirty = true, false
	parts := make([]*hosts, 0, len(o.byService))
	for _, key := range slices.SortedFunc(maps.Keys(o.byService), compareKeys) {
		parts = append(parts, o.byService[key])
	}
	body := marshal(&routev3.RouteConfiguration{Name: OutboundRoute})
	size := len(body)
	for _, h := range parts {
		size += len(h.everywhere)
	}
	body = slices.Grow(body, size-len(body))
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
		if h.namespace == namespace {
			out = append(out, h.own...)
		}
	}
	return out
}
