package mesh

import (
	"strings"
	"time"
	"unique"
)

// Type is an xDS type URL, such as type.googleapis.com/envoy.config.cluster.v3.Cluster.
// The set is open: the store and the streams serve any type.
type Type string

// The types that freshmesh generates.
const (
	TypeCluster  Type = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	TypeEndpoint Type = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	TypeListener Type = "type.googleapis.com/envoy.config.listener.v3.Listener"
	TypeRoute    Type = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
)

// GeneratedTypes are the types that freshmesh generates, in make-before-break
// order (xDS protocol, "Eventual consistency considerations").
var GeneratedTypes = [...]Type{TypeCluster, TypeEndpoint, TypeListener, TypeRoute}

// Short is "cds", "eds", "lds", "rds", or the type URL itself for any other type.
func (t Type) Short() string {
	switch t {
	case TypeCluster:
		return "cds"
	case TypeEndpoint:
		return "eds"
	case TypeListener:
		return "lds"
	case TypeRoute:
		return "rds"
	}
	return string(t)
}

// ParseType is the inverse of Short; text without a dot that is no short name gives false.
func ParseType(s string) (Type, bool) {
	for _, t := range GeneratedTypes {
		if t.Short() == s {
			return t, true
		}
	}
	return Type(s), strings.Contains(s, ".")
}

// NodeID is the id in an xDS node message.
type NodeID string

// Generation counts the store's published changes; 0 is the empty store.
type Generation uint64

// ListenerKind tells which form of listeners a node takes.
type ListenerKind string

// The listener kinds; the zero value stands for both.
const (
	ListenersAny ListenerKind = ""
	// ListenersAPI are for gRPC clients and our data plane: one api_listener for each service port.
	ListenersAPI ListenerKind = "api"
	// ListenersSocket are for Envoy: sockets to bind.
	ListenersSocket ListenerKind = "socket"
)

// View is what nodes of one kind see. It is comparable: nodes of equal views share bytes.
type View struct {
	Listeners ListenerKind
	Namespace string
	Region    string
	Zone      string
	// Node is the Kubernetes node's name.
	Node string
}

// ViewFields is a set of View's fields.
type ViewFields uint8

// The fields that can shape a resource.
const (
	ByNamespace ViewFields = 1 << iota
	ByZone
	ByNode
)

// Mask gives v with all but the named fields cleared.
func (v View) Mask(f ViewFields) View {
	var m View
	if f&ByNamespace != 0 {
		m.Namespace = v.Namespace
	}
	if f&ByZone != 0 {
		m.Zone = v.Zone
	}
	if f&ByNode != 0 {
		m.Node = v.Node
	}
	return m
}

// Resource is one xDS resource as translation makes it.
type Resource struct {
	Type Type
	// Name is unique within Type.
	Name string
	// Body is the deterministic serialisation of the message (the value of its Any), never changed later.
	Body []byte
	// For limits who sees the resource by the node's listener kind; ListenersAny: everybody.
	For ListenerKind
	// Static resources win over those that belong to one node alone.
	Static bool
	// ShapedBy says which fields of a view change the bytes. When it is not
	// 0, Shape gives the bytes for a view (only those fields of it are set);
	// a view with all of them empty gets Body.
	ShapedBy ViewFields
	// Shape is pure and safe for concurrent calls; nil when ShapedBy is 0.
	Shape func(View) []byte
	// FollowedBy names what a client needs again, even unchanged, after this
	// resource changed: a cluster's assignment, since Envoy warms a changed
	// cluster until it gets one (xDS protocol, "Resource warming"). Nil-able.
	FollowedBy []ResourceName
	// Cause is the object whose change made this form of the resource.
	Cause Cause
}

// Cause is an object at a version.
type Cause struct {
	Object          Key
	ResourceVersion string
	// ChangedAt is when the object changed, as ChangedBy tells it: by its own
	// metadata, or else when it was received. Zero, as ReceivedAt, for what is not
	// known to have changed while this process watched.
	ChangedAt time.Time
	ChangedBy ChangeOrigin
	// ReceivedAt is when the source received the change; zero for what was there at the start.
	ReceivedAt time.Time
}

// Took is how long the change took until a later time, as this process saw it.
// The time from the change to its receipt counts too, where it is known: two
// clocks and whole seconds can make that less than nothing, which counts as 0.
// False when the change was not watched.
func (c Cause) Took(until time.Time) (time.Duration, bool) {
	if c.ReceivedAt.IsZero() {
		return 0, false
	}
	return c.Lag() + max(until.Sub(c.ReceivedAt), 0), true
}

// Lag is the time from the change to its receipt; never negative.
func (c Cause) Lag() time.Duration { return max(c.ReceivedAt.Sub(c.ChangedAt), 0) }

// ResourceName is a type and a name.
type ResourceName struct {
	Type Type
	Name string
}

// String gives "cds echo".
func (r ResourceName) String() string { return r.Type.Short() + " " + r.Name }

// Update is one step of translation: what is new or different, and what is gone.
// No name is in both, and none is twice in either.
type Update struct {
	Put    []Resource
	Remove []Removal
}

// Removal is a resource that is gone, and why.
type Removal struct {
	ResourceName
	Cause Cause
}

// Name is an interned resource name: 8 bytes, compared as a pointer, shared by
// every stream that subscribes to it.
type Name = unique.Handle[string]

// Intern gives the Name of a text.
func Intern(name string) Name { return unique.Make(name) }
