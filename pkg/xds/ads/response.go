package ads

import (
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

// removalOrder is the order in which absences are told, after everything else:
// what refers to a resource goes before it ("Eventual consistency considerations").
var removalOrder = [...]mesh.Type{mesh.TypeListener, mesh.TypeRoute, mesh.TypeCluster, mesh.TypeEndpoint}

// Next gives the response to send now, or nil. After one, it gives nil until Sent.
func (s *Stream) Next(now time.Time) *Response {
	if !s.handed.IsZero() || s.closing != "" {
		return nil
	}
	types := s.acks.Types()
	for _, t := range types {
		if r := s.compose(t, false, now); r != nil {
			return r
		}
	}
	for _, t := range removalOrder {
		if r := s.compose(t, true, now); r != nil {
			return r
		}
	}
	for _, t := range types {
		if r := s.compose(t, true, now); r != nil {
			return r
		}
	}
	if s.probeDue {
		s.probeDue = false
		return s.probe(types, now)
	}
	return nil
}

// compose makes the next response of a type. Absences alone are told only when
// removals is set, and so is an answer that is owed but empty.
func (s *Stream) compose(t mesh.Type, removals bool, now time.Time) *Response {
	tr := s.acks.Type(t)
	if tr == nil {
		return nil
	}
	if !tr.Sendable() {
		if _, _, waiting := tr.InFlight(); removals && s.types[t].owed && !waiting {
			return s.send(t, tr, s.nothingNew(t, tr), now)
		}
		return nil
	}
	c := s.gather(t, tr, sorted(tr.Due()), removals, now)
	if c.empty() && !removals {
		return nil
	}
	if c.empty() && !s.types[t].owed {
		return nil
	}
	s.follow(t, c, now)
	return s.send(t, tr, c, now)
}

// content is what a response carries.
type content struct {
	resources []*snapshot.Body
	removed   []string
	// carried are the due names that this response settles.
	carried []ack.Carried
}

func (c *content) empty() bool { return len(c.carried) == 0 }

func (c *content) add(b *snapshot.Body) {
	c.resources = append(c.resources, b)
	c.carried = append(c.carried, ack.Carried{Name: b.Name, Version: b.Version})
}

// gather picks what of the due names goes into the next response.
func (s *Stream) gather(t mesh.Type, tr *ack.Tracker, names []mesh.Name, removals bool, now time.Time) content {
	var c content
	var absent []mesh.Name
	size := 0
	for _, name := range names {
		b := s.view.Body(t, name)
		if b == nil {
			absent = append(absent, name)
			continue
		}
		if size += len(b.Delta()); s.cfg.MaxBytes > 0 && size > s.cfg.MaxBytes && len(c.carried) > 0 && !s.whole(t) {
			break // the rest stays due, for after the answer
		}
		c.add(b)
	}
	switch {
	case s.whole(t):
		s.makeWhole(t, tr, &c, removals)
	case removals:
		s.tellAbsence(tr, &c, absent, size)
	case s.starved(tr, absent, now):
		c = content{} // the others stay due
		s.tellAbsence(tr, &c, absent, 0)
	}
	return c
}

// starved tells whether an absence has waited for so long that others must not
// go before it any more: where something changes all the time it would wait for ever.
func (s *Stream) starved(tr *ack.Tracker, absent []mesh.Name, now time.Time) bool {
	return s.cfg.Delta && slices.ContainsFunc(absent, func(name mesh.Name) bool {
		return now.Sub(tr.Since(name)) > s.cfg.Policy.AckTimeout/2
	})
}

// fieldBytes is at least what a field of a message costs beside its value.
const fieldBytes = 4

// tellAbsence adds the names that do not exist. A name that the client never
// got and did not ask for by name needs no word.
func (s *Stream) tellAbsence(tr *ack.Tracker, c *content, absent []mesh.Name, size int) {
	for _, name := range absent {
		if !s.cfg.Delta || !tr.Named(name) && !tr.Expects(name) {
			tr.Drop(name)
			continue
		}
		if size += len(name.Value()) + fieldBytes; s.cfg.MaxBytes > 0 && size > s.cfg.MaxBytes && len(c.carried) > 0 {
			return // the rest stays due
		}
		c.removed = append(c.removed, name.Value())
		c.carried = append(c.carried, ack.Carried{Name: name})
	}
}

// makeWhole fills a SotW response with all that the client subscribes to; what
// is absent is told by its absence. So it settles all that the client lacks,
// what it refused before included.
func (s *Stream) makeWhole(t mesh.Type, tr *ack.Tracker, c *content, removals bool) {
	if c.empty() && !removals {
		return
	}
	c.carried = c.carried[:0]
	for _, name := range sorted(tr.Lacking()) {
		c.carried = append(c.carried, ack.Carried{Name: name, Version: s.view.Version(t, name)})
	}
	c.resources = s.subscribed(t, tr)
}

// subscribed gives every existing resource that the client subscribes to, by name.
func (s *Stream) subscribed(t mesh.Type, tr *ack.Tracker) []*snapshot.Body {
	if tr.Wildcard() {
		return s.view.All(t)
	}
	out := make([]*snapshot.Body, 0, len(tr.Names()))
	for _, name := range tr.Names() {
		if b := s.view.Body(t, name); b != nil {
			out = append(out, b)
		}
	}
	return out
}

// follow makes due what the client needs again after the resources in c, even
// unchanged: a changed cluster waits for its assignment ("Resource warming").
func (s *Stream) follow(t mesh.Type, c content, now time.Time) {
	for _, carried := range c.carried {
		if carried.Version == "" {
			continue // gone, or for others only
		}
		for _, n := range s.view.FollowedBy(t, carried.Name) {
			name := mesh.Intern(n.Name)
			if tr := s.acks.Type(n.Type); tr != nil && tr.Wants(name) && s.view.Body(n.Type, name) != nil {
				tr.Ask(name, s.view.Version(n.Type, name), now)
			}
		}
	}
}

func (s *Stream) send(t mesh.Type, tr *ack.Tracker, c content, now time.Time) *Response {
	s.nonce++
	var sum uint64
	for _, b := range c.resources {
		sum ^= b.Sum
	}
	version := mesh.SumVersion(sum)
	ts := s.types[t]
	ts.last, ts.version, ts.owed = s.nonce, version, false
	ts.sentAt, ts.changes = now, s.changesIn(t, c, now)
	tr.Sent(s.nonce, now, c.carried)
	s.handed = now
	return &Response{
		Type: t, Nonce: s.nonceText(s.nonce), Version: version,
		Resources: c.resources, Removed: c.removed, Carried: c.carried,
		Generation: s.view.Generation(),
	}
}

// probeOrder prefers what clients acknowledge at once.
var probeOrder = [...]mesh.Type{mesh.TypeEndpoint, mesh.TypeRoute, mesh.TypeCluster, mesh.TypeListener}

// probe makes a response that changes nothing, on something that the client
// subscribes to now: an incremental client gets an empty one; a SotW client
// one unchanged resource, or the whole type where only that is legal, or, where
// it subscribes to nothing that exists, an empty one. What it refused is no probe.
func (s *Stream) probe(types []mesh.Type, now time.Time) *Response {
	order := slices.Concat(probeOrder[:], types)
	for _, find := range []func(mesh.Type, *ack.Tracker) (content, bool){s.unchanged, s.partial} {
		for _, t := range order {
			tr := s.acks.Type(t)
			if tr == nil || !tr.Subscribed() {
				continue
			}
			if _, _, waiting := tr.InFlight(); waiting {
				continue
			}
			c, ok := find(t, tr)
			if !ok {
				continue
			}
			r := s.send(t, tr, c, now)
			s.probed = now
			s.types[t].changes = nil
			r.Probe = true
			return r
		}
	}
	return nil
}

// unchanged gives what a client holds already.
func (s *Stream) unchanged(t mesh.Type, tr *ack.Tracker) (content, bool) {
	if s.cfg.Delta {
		return content{}, true
	}
	if s.whole(t) {
		return s.nothingNew(t, tr), !tr.Refused()
	}
	for _, b := range s.subscribed(t, tr) {
		if !tr.Lacks(b.Name) {
			var c content
			c.add(b)
			return c, true
		}
	}
	return content{}, false
}

// partial gives an empty response where that says nothing.
func (s *Stream) partial(t mesh.Type, _ *ack.Tracker) (content, bool) {
	return content{}, !s.whole(t)
}

// nothingNew gives a response for a client that lacks nothing but what it
// refused, which a whole state settles, too.
func (s *Stream) nothingNew(t mesh.Type, tr *ack.Tracker) content {
	var c content
	if s.whole(t) {
		s.makeWhole(t, tr, &c, true)
	}
	return c
}
