package xds

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
)

// Stirred delivers once after one or more streams were opened or ended, or had
// a request. It is for one reader.
func (s *Server) Stirred() <-chan struct{} { return s.stirred }

func (s *Server) stir() {
	select {
	case s.stirred <- struct{}{}:
	default: // the reader looks at everything anyway
	}
}

// departures are the streams that ended less than drain.Grace ago, with what they held.
type departures struct {
	limit int        // bytes; set once
	mu    sync.Mutex // guards what follows
	list  []departed // oldest first
	bytes int        // of all of them, about
	// lost is when the last one ended that had to be dropped for want of room; zero for never.
	lost time.Time
}

// departed is a stream that has ended. Nobody changes its core any more.
type departed struct {
	node          mesh.NodeID
	pod           mesh.Key
	view          mesh.View
	core          *ads.Stream
	connected, at time.Time
	bytes         int
}

const (
	// maxDepartures and maxDepartedBytes bound the streams that are remembered; the oldest go first.
	maxDepartures    = 20_000
	maxDepartedBytes = 256 << 20
	// nameBytes and lackBytes are about what a name costs that a stream subscribes to, and one that it lacks.
	nameBytes, lackBytes = 8, 256
)

func (d *departures) add(sn *session, now time.Time) {
	gone := departed{
		node: sn.node.ID, pod: sn.node.Pod, view: sn.node.View, core: sn.core, connected: sn.connected, at: now, bytes: sizeOf(sn.core.Acks()),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trim(now)
	for len(d.list) > 0 && (len(d.list) >= maxDepartures || d.bytes+gone.bytes > d.limit) {
		d.lost = d.list[0].at
		d.drop()
	}
	d.list = append(d.list, gone)
	d.bytes += gone.bytes
}

// sizeOf is about what it takes to remember a stream: clients that subscribe to many
// names and leave before they acknowledge them leave the most behind.
func sizeOf(acks *ack.Stream) int {
	size := 0
	for _, t := range acks.Types() {
		tr := acks.Type(t)
		size += len(tr.Names())*nameBytes + len(tr.Lacking())*lackBytes
	}
	return size
}

// drop forgets the oldest.
func (d *departures) drop() {
	d.bytes -= d.list[0].bytes
	d.list[0] = departed{}
	d.list = d.list[1:]
}

func (d *departures) trim(now time.Time) {
	for len(d.list) > 0 && now.Sub(d.list[0].at) >= drain.Grace {
		d.drop()
	}
}

func (d *departures) recent(now time.Time) (list []departed, lost time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trim(now)
	return append([]departed(nil), d.list...), d.lost
}

// Drains gives, for each recall, what every stream that is open or ended less than drain.Grace ago says of its
// endpoints. complete is false when an owner did not answer before ctx ended;
// lost is when the last stream ended that is not remembered although it should be.
// Only one call at a time may use readings.
func (s *Server) Drains(ctx context.Context, recalls []drain.Recall, readings *drain.Readings) (streams [][]drain.Stream, complete bool, lost time.Time) {
	streams = make([][]drain.Stream, len(recalls))
	// Whoever left with a claim is made up for by a stream that is clear of it.
	asked := make(map[mesh.NodeID][]mesh.ResourceName)
	s.departed(recalls, readings, func(_ int, d drain.Stream) {
		for _, c := range d.Claims {
			if !slices.Contains(asked[d.Node], c.Resource) {
				asked[d.Node] = append(asked[d.Node], c.Resource)
			}
		}
	})
	err := s.register.each(ctx, "", func(sn *session) {
		sn.core.Published(sn.reader.View())
		now := time.Now()
		l := look{acks: sn.core.Acks(), core: sn.core, view: sn.core.View(), now: now, readings: readings}
		for i, r := range recalls {
			out := drain.Stream{Node: sn.node.ID, ConnectedAt: sn.connected}
			l.claims(r, &out)
			for _, name := range asked[sn.node.ID] {
				if l.clear(name, r, out.Claims) {
					out.Clear = append(out.Clear, name)
				}
			}
			if len(out.Claims)+len(out.Clear) > 0 {
				streams[i] = append(streams[i], out)
			}
		}
	})
	if err != nil {
		// Owners that answer late no longer write, but the lists are not whole.
		return streams, false, lost
	}
	lost = s.departed(recalls, readings, func(i int, d drain.Stream) { streams[i] = append(streams[i], d) })
	return streams, true, lost
}

// departed gives what those who left say, each with a claim.
func (s *Server) departed(recalls []drain.Recall, readings *drain.Readings, f func(int, drain.Stream)) (lost time.Time) {
	now := time.Now()
	list, lost := s.departures.recent(now)
	for _, d := range list {
		l := look{acks: d.core.Acks(), core: d.core, view: s.cfg.Store.View(d.view), now: now, readings: readings}
		for i, r := range recalls {
			out := drain.Stream{Node: d.node, ConnectedAt: d.connected, LeftAt: d.at, Pod: d.pod, HeardAt: d.connected}
			if at := d.core.Acks().ConfirmedAt; at.After(out.HeardAt) {
				out.HeardAt = at
			}
			if l.claims(r, &out); len(out.Claims) > 0 {
				f(i, out)
			}
		}
	}
	return lost
}

// look looks at one stream, at one time.
type look struct {
	acks     *ack.Stream
	core     *ads.Stream
	view     snapshot.View
	now      time.Time
	readings *drain.Readings
}

// holding is the stream's, but for absences that its variant has no word for:
// those are never known to be held.
func (l look) holding(t mesh.Type, name mesh.Name) ack.Holding {
	h := l.acks.Holding(t, name, l.now, l.view)
	absent := l.view.Body(t, name) == nil || l.core.View().Body(t, name) == nil // the same, but for who has left
	if h.Subscribed && !l.core.TellsAbsence(t) && (absent || !h.Latest && h.Version == "") {
		h.Latest, h.Told, h.State, h.Version = false, true, ack.Pending, ""
		h.Reason = "subscribed to what does not exist, and its variant of the protocol cannot say so"
	}
	return h
}

// claims adds why the node may use one of the endpoints.
func (l look) claims(r drain.Recall, out *drain.Stream) {
	for _, u := range r.Uses {
		h := l.holding(u.Resource.Type, u.Name)
		if !h.Subscribed || !l.hold(u, h).InUse(u) {
			continue
		}
		c := claimOf(u.Resource, h)
		c.Endpoint = u.Endpoint.String()
		if h.Latest && u.Clean == 0 {
			c.Reason, c.Since = drain.Listed, u.Since
		}
		out.Claims = append(out.Claims, c)
	}
	for _, t := range drain.Types {
		if t == mesh.TypeCluster && !r.Inline {
			continue // no cluster names an endpoint
		}
		for name, h := range l.acks.Lagging(t, l.now, l.view) {
			c := claimOf(mesh.ResourceName{Type: t, Name: name}, h)
			claimed := slices.ContainsFunc(out.Claims, func(o drain.Claim) bool { return o.Resource == c.Resource })
			if !claimed && l.unknown(t, name, h, r) {
				c.Detail = "it is not known what it holds: " + c.Detail
				out.Claims = append(out.Claims, c)
				break // one is enough
			}
		}
	}
}

// clear tells whether the stream subscribes to a resource by which the node may
// have used an endpoint, and gives no claim for it.
func (l look) clear(name mesh.ResourceName, r drain.Recall, claims []drain.Claim) bool {
	h := l.holding(name.Type, mesh.Intern(name.Name))
	if !h.Subscribed || slices.ContainsFunc(claims, func(c drain.Claim) bool { return c.Resource == name }) {
		return false
	}
	return h.Latest || slices.ContainsFunc(r.Uses, func(u drain.Use) bool { return u.Resource == name })
}

// hold gives what the stream may hold of one use. One that has ended, or is
// about to, has not looked at the newest view: without an exception it holds
// what was current when it last looked.
func (l look) hold(u drain.Use, h ack.Holding) drain.Hold {
	out := drain.Hold{Subscribed: true, Latest: h.Latest && h.AsOf >= l.view.Generation()}
	switch {
	case out.Latest && u.Clean == 0:
		out.Listed = l.lists(u)
	case out.Latest || u.Clean == 0:
	case h.Latest:
		out.Past = h.AsOf >= u.Clean
	default:
		// A form that came again after the end may be held from before it. It is one
		// thing to run it, and another to have been sent what came between.
		out.Past = l.view.CurrentAfter(u.Resource.Type, u.Name, h.Version, u.Clean) && (!h.Unsure || h.Since.After(u.Since))
	}
	return out
}

// lists tells whether the newest form for this node lists the endpoint as usable.
func (l look) lists(u drain.Use) bool {
	b := l.view.Body(u.Resource.Type, u.Name)
	if b == nil {
		return false
	}
	listing, ok := l.readings.Of(u.Resource, b.Version, b.Value)
	return !ok || listing[u.Endpoint]
}

// unknown tells whether what the node holds of a resource may be older than
// what is remembered, so that it may list anything.
func (l look) unknown(t mesh.Type, name string, h ack.Holding, r drain.Recall) bool {
	switch {
	case (!h.Told || h.Unsure) && !h.Since.After(r.Horizon):
		return true
	case !h.Told:
		return false
	case h.Version == "":
		return true
	}
	return !l.view.CurrentAfter(t, mesh.Intern(name), h.Version, max(r.Forgotten, 1))
}

func claimOf(r mesh.ResourceName, h ack.Holding) drain.Claim {
	c := drain.Claim{Resource: r, Since: h.Since, Detail: h.Reason, Reason: drain.Pending}
	switch h.State {
	case ack.Stale:
		c.Reason = drain.Stale
	case ack.Rejected:
		c.Reason = drain.Rejected
	case ack.Pending, ack.Fresh, ack.Disconnected:
	}
	return c
}
