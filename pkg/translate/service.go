package translate

import (
	"maps"
	"slices"
	"strconv"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	protocolTCP      = "TCP"
	typeExternalName = "ExternalName"
)

// translation is one service on its way to resources.
type translation struct {
	domain  string
	service *mesh.Service
	slices  []*mesh.EndpointSlice
	known   known
	// old is what the same form of the service gave before; empty when there is
	// no such thing. Only its assignments, and whether a cluster is DNS, depend
	// on anything but the service.
	old      *built
	settings settings
	out      []made
	// http are the targets that the outbound table routes to.
	http      []target
	addresses offers
	problems  []mesh.Problem
}

// translate makes the resources of a service that exists; old is what it gave before.
func translate(domain string, e *entry, old *built, known known) (*built, []mesh.Problem) {
	if old.service != e.service {
		old = &built{}
	}
	t := &translation{domain: domain, service: e.service, slices: e.slices, known: known, old: old}
	t.settings = readSettings(e.service, t.report)
	t.addresses = make(offers)
	for i, p := range e.service.Ports {
		// UDP and SCTP are legal and not served.
		if p.Protocol == protocolTCP {
			t.port(i, p)
		}
	}
	b := &built{service: e.service, resources: t.out, hosts: t.hosts(), addresses: t.addresses}
	slices.SortFunc(b.resources, func(a, b made) int { return compareNames(a.name(), b.name()) })
	slices.SortFunc(t.problems, mesh.Problem.Compare)
	return b, slices.Compact(t.problems)
}

// hosts are the entries of the outbound table; nil when no port is HTTP.
func (t *translation) hosts() *hosts {
	if len(t.http) == 0 {
		return nil
	}
	if h := t.old.hosts; h != nil && slices.Equal(h.targets, t.http) {
		return h
	}
	return hostsOf(t.service.Key, t.http, &t.settings)
}

func (t *translation) report(field, reason string) {
	t.problems = append(t.problems, mesh.Problem{Object: t.service.String(), Field: field, Reason: reason})
}

// port makes what one TCP port gives.
func (t *translation) port(i int, p mesh.ServicePort) {
	to := target{host: t.service.Name, namespace: t.service.Namespace, domain: t.domain, port: p.Port}
	t.virtualAddresses(to, p)
	t.podAddresses(p)
	if t.service.Type == typeExternalName {
		t.target(to, p, externalHosts(t.service, p), func(name string) made {
			return assignmentOf(newGroup(name, false, nil))
		})
		return
	}
	f := collect(p, t.slices, t.known)
	if f.offered && !f.matched {
		t.report("spec.ports["+strconv.Itoa(i)+"].name", "no EndpointSlice of the service has a TCP port of the name "+strconv.Quote(p.Name))
	}
	if len(f.endpoints) > 0 && len(f.hosts) > 0 {
		t.mixed()
		f.hosts = nil
	}
	g := newGroup(to.name(), t.service.InternalTrafficLocal, f.endpoints)
	t.target(to, p, usableHosts(f.hosts), func(string) made { return assignmentOf(g) })
	if t.service.Headless {
		t.pods(to, p, g)
	}
}

// externalHosts is the host of an ExternalName service. One without a usable
// name (a problem where it was read) has no endpoints.
func externalHosts(s *mesh.Service, p mesh.ServicePort) []dnsHost {
	if s.ExternalName == "" {
		return nil
	}
	return []dnsHost{{name: s.ExternalName, port: p.Port, ready: true}}
}

// mixed reports the FQDN slices of a service that has addresses too: a cluster
// is resolved by DNS or by EDS, not both, and addresses win.
func (t *translation) mixed() {
	for _, s := range t.slices {
		if s.AddressType == addressTypeFQDN && len(s.Endpoints) > 0 {
			t.problems = append(t.problems, mesh.Problem{
				Object: s.String(),
				Field:  "addressType",
				Reason: "FQDN endpoints are not used, because other slices of the service have IP addresses",
			})
		}
	}
}

// pods makes the names of the pods of a headless service. Their health is what
// it is in the service; nothing shapes them.
func (t *translation) pods(service target, p mesh.ServicePort, g *group) {
	byHost := make(map[string][]placed)
	for _, e := range g.place(mesh.View{}) {
		if e.hostname != "" {
			byHost[e.hostname] = append(byHost[e.hostname], e)
		}
	}
	for _, hostname := range slices.Sorted(maps.Keys(byHost)) {
		to := service
		to.host, to.pod = hostname+"."+service.host, true
		t.target(to, p, nil, func(name string) made {
			return made{Resource: mesh.Resource{Type: mesh.TypeEndpoint, Name: name, Body: marshal(assignment(name, byHost[hostname]))}}
		})
	}
}

// target makes the resources of one name. With hosts the cluster resolves them
// itself and has no assignment.
func (t *translation) target(to target, p mesh.ServicePort, hosts []dnsHost, assignment func(name string) made) {
	spoken, name := protocolOf(p, &t.settings), to.name()
	makeCluster := func() made { return clusterOf(to, spoken, &t.settings, hosts) }
	if len(hosts) > 0 || t.old.find(mesh.ResourceName{Type: mesh.TypeEndpoint, Name: name}) == nil {
		t.out = append(t.out, makeCluster())
	} else {
		t.out = append(t.out, t.reuse(mesh.TypeCluster, name, makeCluster))
	}
	if len(hosts) == 0 {
		t.out = append(t.out, assignment(name))
	}
	if spoken.http {
		t.out = append(t.out,
			t.reuse(mesh.TypeListener, name, func() made { return listenerOf(name) }),
			t.reuse(mesh.TypeRoute, name, func() made { return routeOf(to, &t.settings) }))
		t.http = append(t.http, to)
	}
}

// reuse gives the resource that the same form of the service gave before, or else makes it.
func (t *translation) reuse(kind mesh.Type, name string, otherwise func() made) made {
	if m := t.old.find(mesh.ResourceName{Type: kind, Name: name}); m != nil {
		return *m
	}
	return otherwise()
}
