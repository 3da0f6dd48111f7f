package discovery

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Status is a picture of the client for the admin side. Immutable.
type Status struct {
	// Connected tells whether a stream is open, Server to which address (or
	// which one is being tried), Since when Connected last changed.
	Connected bool
	Server    string
	Since     time.Time
	// EverConnected is true from the first open stream on. Answered is true from
	// the first message on, or from the first stream with nothing to ask on it.
	EverConnected, Answered bool
	// LastMessageAt is when the control plane last said anything; zero for never.
	LastMessageAt time.Time
	// LoadedFromDisk counts the clusters that the state file put in force at the start.
	LoadedFromDisk int
	// LastError is why the last stream ended or could not be opened; "" before that.
	LastError string
	// Clusters are sorted by name.
	Clusters []ClusterStatus
}

// State is how a cluster stands.
type State string

// The states of a cluster.
const (
	// StatePending: nothing to use, and no answer yet.
	StatePending State = "pending"
	// StateInForce: in use, in the newest form that the control plane gave.
	StateInForce State = "in_force"
	// StateAbsent: the control plane says on this stream that there is none.
	StateAbsent State = "absent"
	// StateRefused: the newest form was refused; an older one may be in force.
	StateRefused State = "refused"
)

// ClusterStatus is one cluster in Status. Immutable.
type ClusterStatus struct {
	Name, ServiceName               string
	State                           State
	ClusterVersion, EndpointVersion string
	// ConfirmedAt is when the control plane last vouched for both resources; zero for never.
	ConfirmedAt time.Time
	FromDisk    bool
	// Pinned clusters stay subscribed without being used.
	Pinned bool
	// Endpoints are shared; they must not be changed.
	Endpoints []mesh.Endpoint
	// Reason says why the state is refused.
	Reason string
	// Resources are what there is of the cluster, each with its own age: the
	// Cluster first, then its endpoints. Shared; not to be changed.
	Resources []ResourceStatus
}

// ResourceStatus is one resource that the control plane has given. Immutable.
type ResourceStatus struct {
	mesh.ResourceName
	Version string
	// ConfirmedAt is when the control plane last vouched for it.
	ConfirmedAt time.Time
}

// answer is what callers of Cluster get for one name. Immutable but for changed,
// which is closed when another answer has taken its place.
type answer struct {
	status ClusterStatus
	// One of the two is set once there is something to say; both are nil while pending.
	cluster *Cluster
	err     error
	// dropped: the subscription was ended, and has to be made again.
	dropped bool
	changed chan struct{}
}

// publish tells the callers and the status how a cluster stands now.
func (c *core) publish(s *sub) {
	c.count(s)
	if c.subs[s.name] != s {
		return
	}
	cds := c.entries[mesh.ResourceName{Type: mesh.TypeCluster, Name: s.name}]
	a := answer{cluster: s.inForce, status: ClusterStatus{
		Name: s.name, ServiceName: s.name, State: StatePending, Pinned: s.pinned, Reason: c.refusals(s),
		Resources: c.resources(s),
	}}
	if cluster := s.inForce; cluster != nil {
		a.status.State = StateInForce
		a.status.ServiceName, a.status.Endpoints = cluster.ServiceName, cluster.Endpoints
		a.status.ClusterVersion, a.status.EndpointVersion = cluster.ClusterVersion, cluster.EndpointVersion
		a.status.ConfirmedAt, a.status.FromDisk = cluster.ConfirmedAt, cluster.FromDisk
	}
	switch {
	case a.status.Reason != "":
		a.status.State = StateRefused
		if a.cluster == nil {
			a.err = fmt.Errorf("cluster %s: %w with anything usable: %s", s.name, ErrDiscoveryPending, a.status.Reason)
		}
	case cds != nil && cds.absent:
		a.status.State, a.status.ConfirmedAt = StateAbsent, cds.confirmedAt
		a.err = fmt.Errorf("cluster %s: %w", s.name, ErrUnknownService)
	}
	c.out.answers = append(c.out.answers, a)
}

// resources are what is held of a cluster.
func (c *core) resources(s *sub) []ResourceStatus {
	var list []ResourceStatus
	for _, e := range c.parts(s) {
		if e != nil && e.known && !e.absent {
			list = append(list, ResourceStatus{ResourceName: e.name, Version: e.resource.GetVersion(), ConfirmedAt: e.confirmedAt})
		}
	}
	return list
}

// refusals is why the newest forms of a cluster's resources were refused; "" when none was.
func (c *core) refusals(s *sub) string {
	var texts []string
	for _, e := range c.parts(s) {
		if e != nil && e.refusal != "" {
			texts = append(texts, e.name.Type.Short()+": "+e.refusal)
		}
	}
	return strings.Join(texts, "; ")
}

// Status gives the present picture. It costs time in proportion to the clusters subscribed.
func (c *Client) Status() Status {
	s := *c.connection.Load()
	if at := c.lastMessageAt.Load(); at != 0 {
		s.LastMessageAt, s.Answered = time.Unix(0, at), true
	}
	c.slots.Range(func(_, v any) bool {
		if a := v.(*slot).answer.Load(); !a.dropped {
			s.Clusters = append(s.Clusters, a.status)
		}
		return true
	})
	slices.SortFunc(s.Clusters, func(a, b ClusterStatus) int { return strings.Compare(a.Name, b.Name) })
	return s
}
