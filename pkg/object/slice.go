package object

import (
	"net/netip"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func slice(m mesh.Meta, o *discoveryv1.EndpointSlice, p *problems) mesh.Object {
	s := &mesh.EndpointSlice{
		Meta:        m,
		Service:     o.Labels[discoveryv1.LabelServiceName],
		AddressType: string(o.AddressType),
		Ports:       slicePorts(o, p),
	}
	switch o.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN:
	default:
		p.add("addressType", "%q is none of IPv4, IPv6, FQDN", o.AddressType)
		return s
	}
	for i := range o.Endpoints {
		if e, ok := endpoint(m, o.AddressType, &o.Endpoints[i], index("endpoints", i), p); ok {
			s.Endpoints = append(s.Endpoints, e)
		}
	}
	return s
}

// slicePorts are the good ports; of two with one name the first stands.
func slicePorts(o *discoveryv1.EndpointSlice, p *problems) []mesh.SlicePort {
	names := make(map[string]bool)
	var ports []mesh.SlicePort
	for i, in := range o.Ports {
		field := index("ports", i)
		out := mesh.SlicePort{Name: value(in.Name)}
		if names[out.Name] {
			p.add(field+".name", "%q is the name of an earlier port", out.Name)
			continue
		}
		if in.Port != nil {
			n, ok := portNumber(*in.Port, field+".port", p)
			if !ok {
				continue
			}
			out.Port = n
		}
		var ok bool
		if out.Protocol, ok = protocol(value(in.Protocol), field+".protocol", p); !ok {
			continue
		}
		out.AppProtocol = appProtocol(value(in.AppProtocol), field+".appProtocol", p)
		names[out.Name] = true
		ports = append(ports, out)
	}
	return ports
}

// endpoint gives false when no address of it is good.
func endpoint(m mesh.Meta, t discoveryv1.AddressType, in *discoveryv1.Endpoint, field string, p *problems) (mesh.SliceEndpoint, bool) {
	out := mesh.SliceEndpoint{
		Ready:       clone(in.Conditions.Ready),
		Serving:     clone(in.Conditions.Serving),
		Terminating: clone(in.Conditions.Terminating),
		NodeName:    value(in.NodeName),
		Zone:        value(in.Zone),
	}
	if len(in.Addresses) == 0 {
		p.add(field+".addresses", "missing")
		return out, false
	}
	for i, text := range in.Addresses {
		at := index(field+".addresses", i)
		if t == discoveryv1.AddressTypeFQDN {
			if h := hostname(text, at, p); h != "" {
				out.Hosts = append(out.Hosts, h)
			}
			continue
		}
		if a, ok := familyAddress(t, text, at, p); ok {
			out.Addresses = append(out.Addresses, a)
		}
	}
	if h := value(in.Hostname); h != "" {
		if reasons := validation.IsDNS1123Label(h); len(reasons) > 0 {
			p.add(field+".hostname", "%q: %s", h, reasons[0])
		} else {
			out.Hostname = h
		}
	}
	if r := in.TargetRef; r != nil && r.Kind == string(mesh.KindPod) && r.Name != "" {
		out.Pod = mesh.Key{Kind: mesh.KindPod, Namespace: r.Namespace, Name: r.Name}
		if out.Pod.Namespace == "" {
			out.Pod.Namespace = m.Namespace
		}
		out.PodUID = string(r.UID)
	}
	hints(in.Hints, &out)
	return out, len(out.Addresses)+len(out.Hosts) > 0
}

// familyAddress parses an address, which must be of the slice's family.
func familyAddress(t discoveryv1.AddressType, text, field string, p *problems) (netip.Addr, bool) {
	a, ok := address(text, field, p)
	if ok && a.Is4() != (t == discoveryv1.AddressTypeIPv4) {
		p.add(field, "%q is not an %s address", text, t)
		return a, false
	}
	return a, ok
}

func hints(in *discoveryv1.EndpointHints, out *mesh.SliceEndpoint) {
	if in == nil {
		return
	}
	for _, z := range in.ForZones {
		out.ForZones = append(out.ForZones, z.Name)
	}
	for _, n := range in.ForNodes {
		out.ForNodes = append(out.ForNodes, n.Name)
	}
}

func clone(b *bool) *bool {
	if b == nil {
		return nil
	}
	return new(*b)
}

// value gives what p points to, or the zero value for nil.
func value[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}
