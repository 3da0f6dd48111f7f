package mesh

import (
	"cmp"
	"net/netip"
	"strings"
	"time"
)

// Kind is the kind of a Kubernetes object that the mesh reads.
type Kind string

// The kinds that a Source delivers.
const (
	KindService       Kind = "Service"
	KindEndpointSlice Kind = "EndpointSlice"
	KindPod           Kind = "Pod"
	KindNode          Kind = "Node"
	KindNamespace     Kind = "Namespace"
)

// KindFile is no kind of a Source: a file of static resources, as the cause of one.
const KindFile Kind = "file"

// Key names one Kubernetes object. Namespace is empty for Node and Namespace.
type Key struct {
	Kind      Kind
	Namespace string
	Name      string
}

// String gives "Service default/echo", or "Node worker-1" for a kind without namespace.
func (k Key) String() string {
	if k.Namespace == "" {
		return string(k.Kind) + " " + k.Name
	}
	return string(k.Kind) + " " + k.Namespace + "/" + k.Name
}

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(strings.Compare(string(k.Kind), string(o.Kind)), strings.Compare(k.Namespace, o.Namespace), strings.Compare(k.Name, o.Name))
}

// Object is one of *Service, *EndpointSlice, *Pod, *Node, *Namespace.
type Object interface{ Metadata() *Meta }

// Meta is what every object carries.
type Meta struct {
	Key
	// UID and ResourceVersion are empty for objects that come from files.
	UID             string
	ResourceVersion string
	// Rewinds counts how often the source had gone back to an older state
	// before this form: a form after more of them is the newer one, whatever
	// its ResourceVersion. 0 for objects that come from files.
	Rewinds uint64
	// ChangedAt is when the object last changed as its own metadata tells
	// (managedFields, the last-change-trigger-time annotation); zero when it
	// does not tell.
	ChangedAt time.Time
	// ChangedBy is what ChangedAt was taken from; "" where that is zero.
	ChangedBy ChangeOrigin
	// Origin is the file that the object came from, relative to the watched
	// directory; empty for a cluster.
	Origin string
}

// ChangeOrigin is what the time of a change was taken from; also a metric label.
type ChangeOrigin string

// The origins. Those of Kubernetes often have whole seconds.
const (
	// ByTrigger: the annotation endpoints.kubernetes.io/last-change-trigger-time, the change of a
	// Pod or Service that led to an EndpointSlice.
	ByTrigger ChangeOrigin = "trigger"
	// ByManagedFields: the newest time in metadata.managedFields.
	ByManagedFields ChangeOrigin = "managed-fields"
	// ByReceipt: the object does not tell; it is when the source received it.
	ByReceipt ChangeOrigin = "receipt"
)

// Metadata gives the Meta itself, so that embedding it makes an Object.
func (m *Meta) Metadata() *Meta { return m }

// Service is a core/v1 Service.
type Service struct {
	Meta
	// Type is the service type as the API spells it; "" counts as ClusterIP.
	Type string
	// Headless is true for clusterIP "None".
	Headless bool
	// ClusterIPs are the service's virtual addresses; none for a headless one. Files seldom have any.
	ClusterIPs   []netip.Addr
	ExternalName string
	// Selector tells whether the service has a selector; one without takes
	// its endpoints from slices that somebody else writes.
	Selector                 bool
	PublishNotReadyAddresses bool
	// ClientIPAffinity is sessionAffinity ClientIP, with its timeout (0: the API's default of 3 h).
	ClientIPAffinity        bool
	ClientIPAffinityTimeout time.Duration
	// InternalTrafficLocal is internalTrafficPolicy Local.
	InternalTrafficLocal bool
	// TrafficDistribution is the field's text, or "" ("PreferSameZone", "PreferClose", "PreferSameNode").
	TrafficDistribution string
	Ports               []ServicePort
	// Annotations holds only those with the prefix "freshmesh.dev/", prefix cut off; may be nil.
	Annotations map[string]string
}

// ServicePort is one port of a Service.
type ServicePort struct {
	// Name is "" for the only port of a service that names none.
	Name string
	Port uint16
	// Protocol is "TCP", "UDP" or "SCTP"; "" has become "TCP".
	Protocol    string
	AppProtocol string
}

// EndpointSlice is a discovery.k8s.io/v1 EndpointSlice.
type EndpointSlice struct {
	Meta
	// Service is the value of the label kubernetes.io/service-name; "" when it has none.
	Service string
	// AddressType is "IPv4", "IPv6" or "FQDN".
	AddressType string
	Ports       []SlicePort
	Endpoints   []SliceEndpoint
}

// ServiceKey is the key of the service that the slice belongs to.
func (s *EndpointSlice) ServiceKey() Key {
	return Key{Kind: KindService, Namespace: s.Namespace, Name: s.Service}
}

// SlicePort is one port of an EndpointSlice.
type SlicePort struct {
	Name string
	// Port is 0 when the slice leaves it out, which means "all ports".
	Port        uint16
	Protocol    string
	AppProtocol string
}

// SliceEndpoint is one endpoint of a slice. Its conditions are as the API has
// them: nil means that the slice does not say.
type SliceEndpoint struct {
	// Addresses are the parsed addresses of an IPv4 or IPv6 slice, in order;
	// FQDN slices have Hosts instead. Consumers use the first one, as the API says.
	Addresses                   []netip.Addr
	Hosts                       []string
	Ready, Serving, Terminating *bool
	Hostname                    string
	NodeName                    string
	Zone                        string
	// ForZones and ForNodes are the hints; nil when there are none.
	ForZones, ForNodes []string
	// Pod is the target's key when it is a Pod; its Name is "" otherwise.
	Pod    Key
	PodUID string
}

// Pod is a core/v1 Pod.
type Pod struct {
	Meta
	IPs            []netip.Addr
	NodeName       string
	ServiceAccount string
	Hostname       string
	Subdomain      string
	// Terminating is true once the pod has a deletion timestamp.
	Terminating bool
	// Ended is true in the phases Succeeded and Failed: its containers have all ended, and none will start.
	Ended bool
	// Ready is the Ready condition.
	Ready bool
	// ReadyContainers names the containers, native sidecars included, that are ready, sorted.
	ReadyContainers []string
}

// Node is a core/v1 Node.
type Node struct {
	Meta
	// Zone and Region are the labels topology.kubernetes.io/zone and …/region.
	Zone, Region string
}

// Namespace is a core/v1 Namespace.
type Namespace struct {
	Meta
	Terminating bool
}

// Problem says what is wrong with one object; the object's good parts, or its
// last good form, stay in force.
type Problem struct {
	// Object is a Key as text, or "file NAME" for a file that cannot be read.
	Object string `json:"object"`
	// Field is a path such as spec.ports[0].appProtocol, or "line 12" for a file; may be empty.
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// String gives "OBJECT: FIELD: REASON".
func (p Problem) String() string {
	if p.Field == "" {
		return p.Object + ": " + p.Reason
	}
	return p.Object + ": " + p.Field + ": " + p.Reason
}

// Compare orders problems by object, field and reason, as all lists of them are sorted.
func (p Problem) Compare(q Problem) int {
	return cmp.Or(strings.Compare(p.Object, q.Object), strings.Compare(p.Field, q.Field), strings.Compare(p.Reason, q.Reason))
}
