package xds

import (
	"context"
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

// Told is what is known of one node and some resources.
type Told struct {
	// Node is as in the audit.
	Node ack.Node
	// Deliveries are over all streams of the node, those that ended included,
	// oldest first; Gone is when the newest one was sent that is no longer kept, zero for none.
	Deliveries []ack.Delivery
	Gone       time.Time
	// Holdings are one for each stream and resource subscribed to, in the order
	// in which the streams were opened.
	Holdings []Holding
	// Namespace is the node's; "" when it does not say, or has no stream.
	Namespace string
}

// Holding is how a stream stands to one resource that it subscribes to.
type Holding struct {
	mesh.ResourceName
	ConnectedAt time.Time
	ack.ResourceState
	// Current is the version in this node's view; "" where there is no such resource.
	Current mesh.Version
	// Body is the current form; nil where there is none.
	Body *snapshot.Body
}

// Tell gives what is known of a node and the resources that names gives for its
// view; false for a node that is not known. err is ctx's when an owner of a
// stream did not answer in time.
func (s *Server) Tell(ctx context.Context, id mesh.NodeID, names func(snapshot.View) []mesh.ResourceName) (told Told, known bool, err error) {
	nodes, err := s.register.nodes(ctx, id)
	if err != nil || len(nodes) == 0 {
		return Told{}, false, err
	}
	told.Node = nodes[0]
	all := s.register.ended(id)
	err = s.register.each(ctx, id, func(sn *session) {
		sn.core.Published(sn.reader.View())
		all = all.Join(&sn.deliveries)
		told.Namespace = sn.node.View.Namespace
		for _, name := range names(sn.core.View()) {
			if h, ok := sn.holding(name); ok {
				told.Holdings = append(told.Holdings, h)
			}
		}
	})
	told.Deliveries, told.Gone = all.All()
	slices.SortStableFunc(told.Holdings, func(a, b Holding) int { return a.ConnectedAt.Compare(b.ConnectedAt) })
	return told, true, err
}

// holding is false where the stream does not subscribe to the resource.
func (sn *session) holding(n mesh.ResourceName) (Holding, bool) {
	acks, view, name := sn.core.Acks(), sn.core.View(), mesh.Intern(n.Name)
	tr := acks.Type(n.Type)
	if tr == nil || !tr.Wants(name) {
		return Holding{}, false
	}
	return Holding{
		ResourceName: n, ConnectedAt: sn.connected, ResourceState: acks.Resource(n.Type, name, view),
		Current: view.Version(n.Type, name), Body: view.Body(n.Type, name),
	}, true
}

// ended gives the deliveries of a node's streams that have ended.
func (r *register) ended(id mesh.NodeID) *ack.Deliveries {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.byID[id]; rec != nil && rec.sent != nil {
		return rec.sent
	}
	return &ack.Deliveries{}
}

// keep takes over the deliveries of a stream that ends. The value kept is never
// changed later. Guarded by register.mu.
func (rec *record) keep(d *ack.Deliveries) {
	if rec.sent == nil {
		rec.sent = &ack.Deliveries{}
	}
	rec.sent = rec.sent.Join(d)
}
