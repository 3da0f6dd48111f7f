package translate

import (
	"net/netip"
	"slices"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// maxDrained bounds the endpoints that are remembered as drained; the oldest go first.
const maxDrained = 10_000

// Drained is what has been found drained: no proxy sends to it.
type Drained struct {
	// Pod is the pod, and UID its UID if that is known; without a pod, the
	// pods are meant that slices name for the endpoints.
	Pod mesh.Key
	UID string
	// Endpoints are those of the pod; the port 0 stands for every port.
	Endpoints []netip.AddrPort
}

// KeepDrained keeps endpoints drained: from now on the rule for services without a
// ready endpoint (KEP-1669) does not make them HEALTHY again. That holds for the pod (its UID), until it is
// gone, or until a slice has it as ready again, which it had not been when it was drained.
//
// It gives what changes in the resources, as Apply does; cause is the cause of that, with the slice as
// its object where it has none.
func (t *Translator) KeepDrained(d Drained, cause mesh.Cause) mesh.Update {
	touched := make(map[mesh.Key]mesh.Cause)
	t.inv.drained.add(d, t.inv.slices, func(s *mesh.EndpointSlice) {
		if s.Service == "" {
			return
		}
		by := cause
		if by.Object.Name == "" {
			by.Object, by.ResourceVersion = s.Key, s.ResourceVersion
		}
		touched[s.ServiceKey()] = by
	})
	return t.rebuildAll(touched)
}

// drained is the endpoints that stay drained. An entry is for one pod at one address.
type drained struct {
	// byAddress: address → its entries.
	byAddress map[netip.Addr][]*kept
	// order has the entries, oldest first.
	order []*kept
}

// kept is an endpoint that stays drained.
type kept struct {
	// at is the endpoint; the port 0 stands for every port.
	at netip.AddrPort
	// pod is the zero Key where slices name none; uid is "" where it is not known.
	pod mesh.Key
	uid string
	// gone is true once the Pod was deleted. What no slice lists is forgotten then; before, it may
	// only be on its way from one slice to another.
	gone bool
}

func newDrained() drained { return drained{byAddress: make(map[netip.Addr][]*kept)} }

// is tells whether an entry is about a slice's endpoint, whatever its port.
func (k *kept) is(e *mesh.SliceEndpoint) bool {
	return len(e.Addresses) > 0 && e.Addresses[0] == k.at.Addr() && samePod(e.Pod, k.pod) && (e.PodUID == "" || k.uid == "" || e.PodUID == k.uid)
}

func samePod(a, b mesh.Key) bool { return a.Namespace == b.Namespace && a.Name == b.Name }

// holds tells whether an endpoint that terminates stays drained.
func (d *drained) holds(e *mesh.SliceEndpoint, port uint16) bool {
	if len(d.byAddress) == 0 || len(e.Addresses) == 0 {
		return false
	}
	return slices.ContainsFunc(d.byAddress[e.Addresses[0]], func(k *kept) bool {
		return (k.at.Port() == 0 || k.at.Port() == port) && k.is(e)
	})
}

// add takes in what has been drained, and notes the slices that list it. It
// looks at every slice once: a drain ends seldom, against all that slices do.
func (d *drained) add(of Drained, all map[mesh.Key]*mesh.EndpointSlice, touch func(*mesh.EndpointSlice)) {
	for _, at := range of.Endpoints {
		if of.UID != "" {
			d.keep(kept{at: at, pod: of.Pod, uid: of.UID})
		}
	}
	for _, s := range all {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if len(e.Addresses) == 0 || isReady(e) || of.Pod.Name != "" && !samePod(e.Pod, of.Pod) {
				continue
			}
			for _, at := range of.Endpoints {
				if at.Addr() != e.Addresses[0] {
					continue
				}
				if of.UID == "" {
					d.keep(kept{at: at, pod: e.Pod, uid: e.PodUID})
				}
				touch(s)
			}
		}
	}
}

func (d *drained) keep(k kept) {
	address := k.at.Addr()
	if slices.ContainsFunc(d.byAddress[address], func(old *kept) bool { return *old == k }) {
		return
	}
	d.byAddress[address] = append(d.byAddress[address], &k)
	if d.order = append(d.order, &k); len(d.order) > maxDrained {
		d.drop(d.order[0])
	}
}

func (d *drained) drop(k *kept) {
	address := k.at.Addr()
	same := func(o *kept) bool { return o == k }
	if d.byAddress[address] = slices.DeleteFunc(d.byAddress[address], same); len(d.byAddress[address]) == 0 {
		delete(d.byAddress, address)
	}
	d.order = slices.DeleteFunc(d.order, same)
}

// follow takes in that a slice is now another, or is gone (nil). What is ready in it is no more drained. What
// it listed before is forgotten where no slice does and the pod is gone, or was never known.
func (d *drained) follow(before, now *mesh.EndpointSlice, all map[mesh.Key]*mesh.EndpointSlice) {
	if len(d.byAddress) == 0 {
		return
	}
	d.each(now, func(k *kept, e *mesh.SliceEndpoint) {
		if isReady(e) {
			d.drop(k)
		}
	})
	d.each(before, func(k *kept, _ *mesh.SliceEndpoint) {
		if k.over(all) {
			d.drop(k)
		}
	})
}

// each goes over the entries that are about a slice's endpoints; f may drop them.
func (d *drained) each(s *mesh.EndpointSlice, f func(*kept, *mesh.SliceEndpoint)) {
	if s == nil {
		return
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		for _, k := range slices.Clone(d.byAddress[e.Addresses[0]]) {
			if k.is(e) {
				f(k, e)
			}
		}
	}
}

// deleted takes in that the Pod of a UID is gone; "" is the one that was there.
func (d *drained) deleted(pod mesh.Key, uid string, all map[mesh.Key]*mesh.EndpointSlice) {
	for _, k := range slices.Clone(d.order) {
		if samePod(k.pod, pod) && (uid == "" || k.uid == uid) {
			if k.gone = true; k.over(all) {
				d.drop(k)
			}
		}
	}
}

// over tells whether an entry is of no use any more.
func (k *kept) over(all map[mesh.Key]*mesh.EndpointSlice) bool {
	if !k.gone && k.uid != "" {
		return false
	}
	for _, s := range all {
		for i := range s.Endpoints {
			if k.is(&s.Endpoints[i]) {
				return false
			}
		}
	}
	return true
}
