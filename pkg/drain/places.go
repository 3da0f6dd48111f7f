package drain

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	// keepGone is how long the endpoints of a pod are remembered after the last object that named it.
	keepGone = 10 * time.Minute
	// maxGone bounds how many such pods are remembered; the oldest go first.
	maxGone = 10_000
)

// Places knows where pods are, what the slices say and the pods themselves, and which have ended.
type Places struct {
	mu     sync.Mutex // guards what follows
	slices map[mesh.Key]*mesh.EndpointSlice
	pods   map[mesh.Key]*mesh.Pod
	// services have the numbers for slices that leave a port open.
	services map[mesh.Key]*mesh.Service
	// byPod: pod → the slices that name it. byAddress: address → the slices that list it. byIP: address → the pods that have it.
	byPod     map[mesh.Key]set
	byAddress map[netip.Addr]set
	byIP      map[netip.Addr]set
	// gone: pod → what its slices last said. goneOrder is oldest first.
	gone      map[mesh.Key]gonePod
	goneOrder []mesh.Key
	// fates: pod → how and when it ended; none of those that run. fateOrder is oldest first, and has some that hold no more.
	fates     map[mesh.Key]Fate
	fateOrder []fateOf
}

type set map[mesh.Key]struct{}

type gonePod struct {
	endpoints []Endpoint
	at        time.Time
}

// NewPlaces knows nothing yet.
func NewPlaces() *Places {
	return &Places{
		slices: make(map[mesh.Key]*mesh.EndpointSlice), pods: make(map[mesh.Key]*mesh.Pod), services: make(map[mesh.Key]*mesh.Service),
		byPod: make(map[mesh.Key]set), byAddress: make(map[netip.Addr]set), byIP: make(map[netip.Addr]set),
		gone: make(map[mesh.Key]gonePod), fates: make(map[mesh.Key]Fate),
	}
}

// Put takes an object that exists. It is not changed later.
func (p *Places) Put(o mesh.Object, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch o := o.(type) {
	case *mesh.EndpointSlice:
		p.detach(o.Key, o, now)
		p.slices[o.Key] = o
		p.attach(o)
	case *mesh.Pod:
		p.detachPod(o.Key)
		p.pods[o.Key] = o
		p.live(o, now)
		for _, ip := range o.IPs {
			add(p.byIP, ip, o.Key)
		}
	case *mesh.Service:
		p.services[o.Key] = o
	}
}

// Delete takes an object that exists no longer. One of another UID than the one held is another object.
func (p *Places) Delete(m mesh.Meta, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	other := func(held *mesh.Meta) bool { return m.UID != "" && held.UID != "" && m.UID != held.UID }
	switch m.Kind {
	case mesh.KindEndpointSlice:
		if s := p.slices[m.Key]; s != nil && !other(&s.Meta) {
			p.detach(m.Key, nil, now)
		}
	case mesh.KindPod:
		if o := p.pods[m.Key]; o != nil && !other(&o.Meta) {
			p.detachPod(m.Key)
			p.dead(o, m, now)
		}
	case mesh.KindService:
		if o := p.services[m.Key]; o != nil && !other(&o.Meta) {
			delete(p.services, m.Key)
		}
	case mesh.KindNode, mesh.KindNamespace, mesh.KindFile:
	}
}

func add[K comparable](index map[K]set, at K, key mesh.Key) {
	if index[at] == nil {
		index[at] = make(set)
	}
	index[at][key] = struct{}{}
}

func drop[K comparable](index map[K]set, at K, key mesh.Key) {
	if delete(index[at], key); len(index[at]) == 0 {
		delete(index, at)
	}
}

func (p *Places) attach(s *mesh.EndpointSlice) {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if e.Pod.Name != "" {
			add(p.byPod, podKey(e.Pod.Namespace, e.Pod.Name), s.Key)
		}
		if len(e.Addresses) > 0 {
			add(p.byAddress, e.Addresses[0].Unmap(), s.Key)
		}
	}
}

// detach takes a slice out; what it says of pods that next, its successor, does not name is remembered.
func (p *Places) detach(key mesh.Key, next *mesh.EndpointSlice, now time.Time) {
	s := p.slices[key]
	if s == nil {
		return
	}
	still := make(map[mesh.Key]netip.Addr)
	if next != nil {
		for i := range next.Endpoints {
			if e := &next.Endpoints[i]; len(e.Addresses) > 0 {
				still[podKey(e.Pod.Namespace, e.Pod.Name)] = e.Addresses[0]
			}
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if len(e.Addresses) > 0 {
			drop(p.byAddress, e.Addresses[0].Unmap(), key)
		}
		if e.Pod.Name == "" {
			continue
		}
		pod := podKey(e.Pod.Namespace, e.Pod.Name)
		if len(e.Addresses) > 0 && still[pod] != e.Addresses[0] {
			p.remember(pod, e.Addresses[0].Unmap(), p.ports(s), now)
		}
		drop(p.byPod, pod, key)
	}
	delete(p.slices, key)
}

func (p *Places) detachPod(key mesh.Key) {
	if old := p.pods[key]; old != nil {
		for _, ip := range old.IPs {
			drop(p.byIP, ip, key)
		}
		delete(p.pods, key)
	}
}

// remember keeps where a pod was.
func (p *Places) remember(pod mesh.Key, address netip.Addr, ports []uint16, now time.Time) {
	old, again := p.gone[pod]
	var all []Endpoint
	if again && now.Sub(old.at) < keepGone {
		all = slices.Clone(old.endpoints)
	}
	for _, port := range ports {
		all = append(all, Endpoint{address, port})
	}
	slices.SortFunc(all, compareEndpoints)
	p.gone[pod] = gonePod{slices.Compact(all), now}
	if !again {
		p.goneOrder = append(p.goneOrder, pod)
	}
	for len(p.goneOrder) > 0 {
		first := p.goneOrder[0]
		if now.Sub(p.gone[first].at) < keepGone && len(p.gone) <= maxGone {
			return
		}
		p.goneOrder = p.goneOrder[1:]
		delete(p.gone, first)
	}
}

func podKey(namespace, name string) mesh.Key {
	return mesh.Key{Kind: mesh.KindPod, Namespace: namespace, Name: name}
}

func (p *Places) bySlices(pod mesh.Key) []Endpoint {
	var out []Endpoint
	for key := range p.byPod[pod] {
		s := p.slices[key]
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if podKey(e.Pod.Namespace, e.Pod.Name) != pod || len(e.Addresses) == 0 {
				continue
			}
			for _, port := range p.ports(s) {
				out = append(out, Endpoint{e.Addresses[0].Unmap(), port})
			}
		}
	}
	return out
}

// ports are the numbers that a slice's ports have; those that it leaves open are the service's own.
func (p *Places) ports(s *mesh.EndpointSlice) []uint16 {
	var out []uint16
	for _, port := range s.Ports {
		if port.Port != 0 {
			out = append(out, port.Port)
			continue
		}
		if service := p.services[s.ServiceKey()]; service != nil {
			for _, of := range service.Ports {
				out = append(out, of.Port)
			}
		}
	}
	return out
}

// Pod gives the endpoints of a pod, sorted: those that slices name or lately named, and
// every port of its own addresses, unless other pods share them (hostNetwork).
// known is false for a pod that nothing names.
func (p *Places) Pod(namespace, name string, now time.Time) (endpoints []Endpoint, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := podKey(namespace, name)
	all := p.bySlices(key)
	if gone, ok := p.gone[key]; ok && now.Sub(gone.at) < keepGone {
		known = true
		for _, e := range gone.endpoints {
			if !p.taken(e, key) {
				all = append(all, e)
			}
		}
	}
	pod := p.pods[key]
	if pod != nil {
		for _, ip := range pod.IPs {
			if len(p.byIP[ip]) == 1 {
				all = append(all, Endpoint{Address: ip.Unmap()})
			}
		}
	}
	slices.SortFunc(all, compareEndpoints)
	return slices.Compact(all), known || pod != nil || len(p.byPod[key]) > 0
}

// taken tells whether slices name another pod, and not this one, for an endpoint.
func (p *Places) taken(e Endpoint, pod mesh.Key) bool {
	other := false
	for entry := range p.entries(e) {
		if podKey(entry.Pod.Namespace, entry.Pod.Name) == pod {
			return false
		}
		other = other || entry.Pod.Name != ""
	}
	return other
}

func (p *Places) entries(e Endpoint) map[*mesh.SliceEndpoint]struct{} {
	out := make(map[*mesh.SliceEndpoint]struct{})
	for key := range p.byAddress[e.Address] {
		s := p.slices[key]
		if e.Port != 0 && !slices.Contains(p.ports(s), e.Port) {
			continue
		}
		for i := range s.Endpoints {
			if entry := &s.Endpoints[i]; len(entry.Addresses) > 0 && entry.Addresses[0].Unmap() == e.Address {
				out[entry] = struct{}{}
			}
		}
	}
	return out
}

// Terminating tells whether slices list the endpoint, and all of them as one
// that is not ready any more: where it is served as HEALTHY, then only because its service has no other (KEP-1669).
func (p *Places) Terminating(at netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	entries := p.entries(Endpoint{at.Addr(), at.Port()})
	for e := range entries {
		if e.Ready == nil || *e.Ready {
			return false
		}
	}
	return len(entries) > 0
}
