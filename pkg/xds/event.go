package xds

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
)

// Event is something that happened to a node. Immutable.
type Event struct {
	ack.Event
	Node mesh.NodeID
	// Address is the client's, of the stream.
	Address string
	// Generation is what a sent response was made from; 0 for other events.
	Generation mesh.Generation
	// Carried are the names that a sent response settles; not to be changed.
	Carried []ack.Carried
}

// emit passes an event on to Config.Events.
func (sn *session) emit(event string, t mesh.Type, v mesh.Version, reason string, r *ads.Response) {
	f := sn.server.cfg.Events
	if f == nil {
		return
	}
	e := Event{
		Event: ack.Event{At: time.Now(), Event: event, Version: v, Reason: reason},
		Node:  sn.node.ID, Address: sn.address,
	}
	if t != "" {
		e.Type = t.Short()
	}
	if r != nil {
		e.Generation, e.Carried = r.Generation, r.Carried
	}
	f(e)
}
