package translate

import (
	"maps"
	"slices"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// inventory is the objects as held, arranged by what they touch. Pods and
// namespaces change no resource, so they are not held; that a pod is gone is the
// end of what is remembered of its drain.
type inventory struct {
	// services has an entry for each service that exists or that a slice names.
	services map[mesh.Key]*entry
	slices   map[mesh.Key]*mesh.EndpointSlice
	nodes    map[string]*mesh.Node
	// tenants are the services with endpoints on a node: node name → service → how many slices say so.
	tenants map[string]map[mesh.Key]int
	drained drained
}

// entry is one service with its slices.
type entry struct {
	// service is nil while only slices name it.
	service *mesh.Service
	// slices are sorted by name.
	slices []*mesh.EndpointSlice
}

func newInventory() inventory {
	return inventory{
		services: make(map[mesh.Key]*entry),
		slices:   make(map[mesh.Key]*mesh.EndpointSlice),
		nodes:    make(map[string]*mesh.Node),
		tenants:  make(map[string]map[mesh.Key]int),
		drained:  newDrained(),
	}
}

// apply takes one change and notes the services whose translation it can change.
func (v *inventory) apply(c Change, touched map[mesh.Key]mesh.Cause) {
	if c.Put == nil {
		v.remove(&c.Delete, c.cause(), touched)
		return
	}
	m := c.Put.Metadata()
	if held := v.held(m.Key); held != nil && olderThan(m, held.Metadata()) {
		return
	}
	cause := c.cause()
	switch o := c.Put.(type) {
	case *mesh.Service:
		v.putService(o, cause, touched)
	case *mesh.EndpointSlice:
		v.putSlice(o, cause, touched)
	case *mesh.Node:
		v.putNode(o, cause, touched)
	}
}

func (v *inventory) putService(s *mesh.Service, cause mesh.Cause, touched map[mesh.Key]mesh.Cause) {
	e := v.entry(s.Key)
	if e.service == nil || !sameService(e.service, s) {
		touched[s.Key] = cause
	}
	e.service = s
}

func (v *inventory) putSlice(s *mesh.EndpointSlice, cause mesh.Cause, touched map[mesh.Key]mesh.Cause) {
	old := v.slices[s.Key]
	changed := old == nil || !sameSlice(old, s)
	if old != nil {
		if changed {
			touched[old.ServiceKey()] = cause
		}
		v.detach(old)
	}
	v.slices[s.Key] = s
	v.drained.follow(old, s, v.slices)
	if s.Service == "" {
		return
	}
	key := s.ServiceKey()
	if changed {
		touched[key] = cause
	}
	e := v.entry(key)
	i, _ := slices.BinarySearchFunc(e.slices, s.Name, compareSliceName)
	e.slices = slices.Insert(e.slices, i, s)
	for node := range nodesOf(s) {
		if v.tenants[node] == nil {
			v.tenants[node] = make(map[mesh.Key]int)
		}
		v.tenants[node][key]++
	}
}

// detach takes a slice out of everything but the map of slices.
func (v *inventory) detach(s *mesh.EndpointSlice) {
	if s.Service == "" {
		return
	}
	key := s.ServiceKey()
	e := v.services[key]
	if i, found := slices.BinarySearchFunc(e.slices, s.Name, compareSliceName); found {
		e.slices = slices.Delete(e.slices, i, i+1)
	}
	v.forget(key)
	for node := range nodesOf(s) {
		if v.tenants[node][key]--; v.tenants[node][key] == 0 {
			delete(v.tenants[node], key)
		}
		if len(v.tenants[node]) == 0 {
			delete(v.tenants, node)
		}
	}
}

// putNode touches the node's tenants if its region changed: nothing else of a node is in any resource.
func (v *inventory) putNode(n *mesh.Node, cause mesh.Cause, touched map[mesh.Key]mesh.Cause) {
	before := v.region(n.Name)
	v.nodes[n.Name] = n
	v.touchTenants(n.Name, before, cause, touched)
}

func (v *inventory) touchTenants(node, before string, cause mesh.Cause, touched map[mesh.Key]mesh.Cause) {
	if v.region(node) == before {
		return
	}
	for key := range v.tenants[node] {
		touched[key] = cause
	}
}

// remove takes an object out, unless the deletion is of another object or older than what is held.
func (v *inventory) remove(m *mesh.Meta, cause mesh.Cause, touched map[mesh.Key]mesh.Cause) {
	if m.Kind == mesh.KindPod {
		v.drained.deleted(m.Key, m.UID, v.slices)
	}
	object := v.held(m.Key)
	if object == nil {
		return
	}
	held := object.Metadata()
	if m.UID != "" && held.UID != "" && m.UID != held.UID || olderThan(m, held) {
		return
	}
	switch o := object.(type) {
	case *mesh.Service:
		v.services[o.Key].service = nil
		v.forget(o.Key)
		touched[o.Key] = cause
	case *mesh.EndpointSlice:
		delete(v.slices, o.Key)
		v.detach(o)
		v.drained.follow(o, nil, v.slices)
		if o.Service != "" {
			touched[o.ServiceKey()] = cause
		}
	case *mesh.Node:
		before := v.region(o.Name)
		delete(v.nodes, o.Name)
		v.touchTenants(o.Name, before, cause, touched)
	}
}

// held gives the object of that key; a nil interface when there is none.
func (v *inventory) held(key mesh.Key) mesh.Object {
	switch key.Kind {
	case mesh.KindService:
		if e := v.services[key]; e != nil && e.service != nil {
			return e.service
		}
	case mesh.KindEndpointSlice:
		if s := v.slices[key]; s != nil {
			return s
		}
	case mesh.KindNode:
		if n := v.nodes[key.Name]; n != nil {
			return n
		}
	case mesh.KindPod, mesh.KindNamespace, mesh.KindFile:
	}
	return nil
}

func (v *inventory) entry(key mesh.Key) *entry {
	e := v.services[key]
	if e == nil {
		e = &entry{}
		v.services[key] = e
	}
	return e
}

// forget drops the entry of a service that nothing names any more.
func (v *inventory) forget(key mesh.Key) {
	if e := v.services[key]; e.service == nil && len(e.slices) == 0 {
		delete(v.services, key)
	}
}

// region is the node's region; "" while the node is not known.
func (v *inventory) region(node string) string {
	if n := v.nodes[node]; n != nil {
		return n.Region
	}
	return ""
}

// nodesOf is the set of nodes that a slice's endpoints are on.
func nodesOf(s *mesh.EndpointSlice) map[string]struct{} {
	nodes := make(map[string]struct{})
	for i := range s.Endpoints {
		if n := s.Endpoints[i].NodeName; n != "" {
			nodes[n] = struct{}{}
		}
	}
	return nodes
}

func compareSliceName(s *mesh.EndpointSlice, name string) int { return strings.Compare(s.Name, name) }

// Objects gives the Service (if it exists) and its slices, sorted by name, as held.
func (t *Translator) Objects(service mesh.Key) []mesh.Object {
	e := t.inv.services[service]
	if e == nil {
		return nil
	}
	var objects []mesh.Object
	if e.service != nil {
		objects = append(objects, e.service)
	}
	for _, s := range e.slices {
		objects = append(objects, s)
	}
	return objects
}

// Differs gives the changes that make what is held of a service equal to live,
// a complete live read of the Service and its slices: puts of what is new or
// different in meaning, deletions of what is missing. It is empty when they are
// equal, and says nothing of an object whose live form is older than the one
// held: then it is the read that lags.
func (t *Translator) Differs(service mesh.Key, live []mesh.Object) []Change {
	missing := make(map[mesh.Key]mesh.Object)
	for _, o := range t.Objects(service) {
		missing[o.Metadata().Key] = o
	}
	var changes []Change
	for _, o := range live {
		m := o.Metadata()
		delete(missing, m.Key)
		held := t.inv.held(m.Key)
		if held != nil && (olderThan(m, held.Metadata()) || sameMeaning(held, o)) {
			continue
		}
		if m.Kind == mesh.KindService || m.Kind == mesh.KindEndpointSlice {
			changes = append(changes, Change{Put: o})
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(missing), mesh.Key.Compare) {
		changes = append(changes, Change{Delete: *missing[key].Metadata()})
	}
	return changes
}
