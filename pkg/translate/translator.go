package translate

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// DefaultClusterDomain is the cluster domain unless Config says otherwise.
const DefaultClusterDomain = "cluster.local"

// Config is fixed for a Translator's life.
type Config struct {
	// ClusterDomain ends the services' names; "" is DefaultClusterDomain.
	ClusterDomain string
}

// Change is one object that exists now, or no longer.
type Change struct {
	// Put is the object; nil means Delete.
	Put mesh.Object
	// Delete is the object that is gone: its Key, and UID and ResourceVersion where known.
	Delete mesh.Meta
	// ReceivedAt is when the source received the change; zero for what was there
	// at the start. It goes into the Cause of what changes.
	ReceivedAt time.Time
}

// cause is the change as the Cause of resources. A deletion's own time is not in
// any metadata, so it counts from its receipt.
func (c *Change) cause() mesh.Cause {
	m := &c.Delete
	if c.Put != nil {
		m = c.Put.Metadata()
	}
	out := mesh.Cause{Object: m.Key, ResourceVersion: m.ResourceVersion, ReceivedAt: c.ReceivedAt}
	switch {
	case c.Put != nil && !m.ChangedAt.IsZero():
		out.ChangedAt, out.ChangedBy = m.ChangedAt, m.ChangedBy
	case !c.ReceivedAt.IsZero():
		out.ChangedAt, out.ChangedBy = c.ReceivedAt, mesh.ByReceipt
	}
	return out
}

// Translator turns changes of objects into changes of resources. One goroutine owns it.
type Translator struct {
	domain string
	inv    inventory
	// built is what was last made of each service; a service that gives nothing has no entry.
	built map[mesh.Key]*built
	// owner is the service of each cluster name.
	owner map[string]mesh.Key
	// problems are those of services that have any.
	problems     map[mesh.Key][]mesh.Problem
	outbound     outbound
	addresses    addresses
	translations uint64
}

// built is one service, translated.
type built struct {
	// service is the form that it was made from.
	service *mesh.Service
	// resources are sorted by compareNames.
	resources []made
	// hosts is nil when no port is HTTP.
	hosts *hosts
	// addresses are what the service's addresses lead to.
	addresses offers
}

// find gives the resource of that name; nil when there is none.
func (b *built) find(name mesh.ResourceName) *made {
	i, found := slices.BinarySearchFunc(b.resources, name, func(m made, n mesh.ResourceName) int { return compareNames(m.name(), n) })
	if !found {
		return nil
	}
	return &b.resources[i]
}

// made is a resource, and all that its shapes depend on: equal bodies with
// equal shaping are equal for every view.
type made struct {
	mesh.Resource
	shaping string
}

// New gives a Translator that holds nothing.
func New(c Config) *Translator {
	domain := strings.Trim(c.ClusterDomain, ".")
	if domain == "" {
		domain = DefaultClusterDomain
	}
	return &Translator{
		domain:   domain,
		inv:      newInventory(),
		built:    make(map[mesh.Key]*built),
		owner:    make(map[string]mesh.Key),
		problems: make(map[mesh.Key][]mesh.Problem),

		addresses: newAddresses(),
	}
}

// Apply takes changes, in order, and gives what they change in the resources,
// sorted by type (make-before-break) and name. Only services that they touch
// are translated, each once, and only resources that came out different are in
// the update.
//
// An object older than the one held (the same UID, numeric resourceVersions) is
// ignored, and so is a deletion that is older or of another UID.
func (t *Translator) Apply(changes []Change) mesh.Update {
	touched := make(map[mesh.Key]mesh.Cause)
	for _, c := range changes {
		t.inv.apply(c, touched)
	}
	return t.rebuildAll(touched)
}

// rebuildAll translates services, each for its cause, and gives what came out different.
func (t *Translator) rebuildAll(touched map[mesh.Key]mesh.Cause) mesh.Update {
	var u mesh.Update
	for _, key := range slices.SortedFunc(maps.Keys(touched), mesh.Key.Compare) {
		t.rebuild(key, touched[key], &u)
	}
	t.addresses.publish(&u)
	if r, changed := t.outbound.resource(); changed {
		u.Put = append(u.Put, r)
	}
	slices.SortFunc(u.Put, func(a, b mesh.Resource) int {
		return compareNames(mesh.ResourceName{Type: a.Type, Name: a.Name}, mesh.ResourceName{Type: b.Type, Name: b.Name})
	})
	slices.SortFunc(u.Remove, func(a, b mesh.Removal) int { return compareNames(a.ResourceName, b.ResourceName) })
	return u
}

// rebuild translates one service and adds what came out different to u.
func (t *Translator) rebuild(key mesh.Key, cause mesh.Cause, u *mesh.Update) {
	old := t.built[key]
	if old == nil {
		old = &built{}
	}
	now, problems := &built{}, []mesh.Problem(nil)
	if e := t.inv.services[key]; e != nil && e.service != nil {
		t.translations++
		now, problems = translate(t.domain, e, old, known{t.inv.region, &t.inv.drained})
	}
	if len(problems) > 0 {
		t.problems[key] = problems
	} else {
		delete(t.problems, key)
	}
	t.compare(key, old.resources, now.resources, cause, u)
	t.addresses.replace(key, old.addresses, now.addresses, cause)
	t.outbound.put(key, now.hosts, cause)
	if len(now.resources) > 0 || len(now.addresses) > 0 {
		t.built[key] = now
	} else {
		delete(t.built, key)
	}
}

// compare walks both sorted lists side by side. Resources that did not change
// keep their old form, cause included.
func (t *Translator) compare(key mesh.Key, old, now []made, cause mesh.Cause, u *mesh.Update) {
	i := 0
	remove := func(gone *made) {
		u.Remove = append(u.Remove, mesh.Removal{ResourceName: gone.name(), Cause: cause})
		if gone.Type == mesh.TypeCluster {
			delete(t.owner, gone.Name)
		}
	}
	for j := range now {
		r := &now[j]
		for i < len(old) && compareNames(old[i].name(), r.name()) < 0 {
			remove(&old[i])
			i++
		}
		if i < len(old) && old[i].name() == r.name() {
			same := old[i].equal(r)
			if same {
				*r = old[i]
			}
			i++
			if same {
				continue
			}
		}
		r.Cause = cause
		u.Put = append(u.Put, r.Resource)
		if r.Type == mesh.TypeCluster {
			t.owner[r.Name] = key
		}
	}
	for ; i < len(old); i++ {
		remove(&old[i])
	}
}

func (m *made) name() mesh.ResourceName { return mesh.ResourceName{Type: m.Type, Name: m.Name} }

func (m *made) equal(o *made) bool {
	return m.For == o.For && m.ShapedBy == o.ShapedBy && m.shaping == o.shaping && string(m.Body) == string(o.Body)
}

// Problems are the current ones, sorted by object, field and reason; a new slice.
func (t *Translator) Problems() []mesh.Problem {
	var all []mesh.Problem
	for _, p := range t.problems {
		all = append(all, p...)
	}
	slices.SortFunc(all, mesh.Problem.Compare)
	return slices.Compact(all)
}

// Translations counts the services translated since New.
func (t *Translator) Translations() uint64 { return t.translations }

// ServiceOf gives the service that a generated cluster (or assignment) name
// belongs to, and false for a name that is not generated now.
func (t *Translator) ServiceOf(cluster string) (mesh.Key, bool) {
	key, ok := t.owner[cluster]
	return key, ok
}

// compareNames orders by type, make-before-break, and then by name.
func compareNames(a, b mesh.ResourceName) int {
	return cmp.Or(cmp.Compare(rank(a.Type), rank(b.Type)), strings.Compare(a.Name, b.Name))
}

func rank(t mesh.Type) int { return slices.Index(mesh.GeneratedTypes[:], t) }
