package ads

import (
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
			return s.send(t, tr, content{}, now)
		}
		return nil
	}
	c := s.gather(t, tr, sorted(tr.Due()), removals)
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
func (s *Stream) gather(t mesh.Type, tr *ack.Tracker, names []mesh.Name, removals bool) content {
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
		s.makeWhole(t, tr, &c, absent, removals)
	case removals:
		s.tellAbsence(tr, &c, absent)
	}
	return c
}

// tellAbsence adds the names that do not exist. A name that the client never
// got and did not ask for by name needs no word.
func (s *Stream) tellAbsence(tr *ack.Tracker, c *content, absent []mesh.Name) {
	for _, name := range absent {
		if !s.cfg.Delta || !tr.Named(name) && !tr.Holds(name) {
			tr.Drop(name)
			continue
		}
		c.removed = append(c.removed, name.Value())
		c.carried = append(c.carried, ack.Carried{Name: name})
	}
}

// makeWhole fills a SotW response with all that the client subscribes to; what
// is absent is told by its absence.
func (s *Stream) makeWhole(t mesh.Type, tr *ack.Tracker, c *content, absent []mesh.Name, removals bool) {
	if c.empty() && !removals {
		return
	}
	for _, name := range absent {
		c.carried = append(c.carried, ack.Carried{Name: name})
	}
	c.resources = s.subscribed(t, tr)
}

// subscribed gives every existing resource that the client subscribes to, by name.
func (s *Stream) subscribed(t mesh.Type, tr *ack.Tracker) []*snapshot.Body {
	if tr.Wildcard() {
		return s.view.All(t)
	}
	names := make([]mesh.Name, 0, len(tr.Names()))
	for name := range tr.Names() {
		names = append(names, name)
	}
	out := make([]*snapshot.Body, 0, len(names))
	for _, name := range sorted(names) {
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
	ts.publishedAt = s.newest(t, c)
	tr.Sent(s.nonce, now, c.carried)
	s.handed = now
	return &Response{
		Type: t, Nonce: s.nonceText(s.nonce), Version: version,
		Resources: c.resources, Removed: c.removed,
	}
}

// newest gives when the newest change in c was published; zero for none.
func (s *Stream) newest(t mesh.Type, c content) time.Time {
	var at time.Time
	for _, carried := range c.carried {
		if changed, _, ok := s.view.Cause(t, carried.Name); ok && changed.After(at) {
			at = changed
		}
	}
	return at
}

// probeOrder prefers what clients acknowledge at once.
var probeOrder = [...]mesh.Type{mesh.TypeEndpoint, mesh.TypeRoute, mesh.TypeCluster, mesh.TypeListener}

// probe makes a response that changes nothing, on something that the client
// subscribes to now: an incremental client gets an empty one; a SotW client
// one unchanged resource, or the whole type where only that is legal.
func (s *Stream) probe(types []mesh.Type, now time.Time) *Response {
	for _, t := range append(probeOrder[:], types...) {
		tr := s.acks.Type(t)
		if tr == nil || !tr.Subscribed() {
			continue
		}
		if _, _, waiting := tr.InFlight(); waiting {
			continue
		}
		c, ok := s.unchanged(t, tr)
		if !ok {
			continue
		}
		r := s.send(t, tr, c, now)
		s.probed = now
		s.types[t].publishedAt = time.Time{}
		r.Probe = true
		return r
	}
	return nil
}

func (s *Stream) unchanged(t mesh.Type, tr *ack.Tracker) (content, bool) {
	switch {
	case s.cfg.Delta:
		return content{}, true
	case s.whole(t):
		return content{resources: s.subscribed(t, tr)}, true
	}
	for name := range tr.Names() {
		if b := s.view.Body(t, name); b != nil {
			var c content
			c.add(b)
			return c, true
		}
	}
	return content{}, false
}
