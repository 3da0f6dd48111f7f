package ack

import (
	"iter"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Holding is what the client of a stream has, or may have, of one resource.
type Holding struct {
	// Subscribed: the client asks for the resource now.
	Subscribed bool
	// Latest: it is known to hold the resource, or its absence, as it was at the generation AsOf.
	Latest bool
	AsOf   mesh.Generation
	// Version is what it acknowledged last. Forms that were sent since may be in
	// force as well, but none that is older. "" where that is not known, or nothing.
	Version mesh.Version
	// Unsure: such forms were sent, so Version need not be what is in force, even
	// where it is current again.
	Unsure bool
	// Told: what it has from before this stream is not known but by its own
	// word (Version), or not at all ("").
	Told bool
	// State is Fresh where Latest is set, and otherwise Rejected, Stale or Pending; Reason says why.
	State  State
	Reason string
	// Since is when what it holds went out of date; zero where Latest is set.
	Since time.Time
}

// Holding gives what the client may have of a resource.
func (s *Stream) Holding(t mesh.Type, name mesh.Name, now time.Time, cur Current) Holding {
	tr := s.types[t]
	if tr == nil || !tr.Wants(name) {
		return Holding{}
	}
	e, lacks := tr.exceptions[name]
	return s.holding(tr, e, lacks, now, cur.Version(t, name))
}

func (s *Stream) holding(tr *Tracker, e exception, lacks bool, now time.Time, version mesh.Version) Holding {
	out, behindSince := Holding{Subscribed: true, AsOf: tr.seen}, e.behindSince()
	switch {
	case !lacks && tr.unproven:
		e, behindSince = exception{told: true, since: s.ConnectedAt}, tr.doubtedSince(now)
	case !lacks || e.holding(version) == version:
		out.Latest, out.State, out.Version = true, Fresh, version
		return out
	}
	out.Version, out.Unsure, out.Told, out.Since = e.held, e.unsure, e.told, e.since
	switch {
	case e.phase == refused && lacks:
		out.State, out.Reason = Rejected, tr.nack.message
	case now.Sub(behindSince) > s.Policy.AckTimeout || now.Sub(s.quietSince()) > s.Policy.ProbeInterval+s.Policy.AckTimeout:
		out.State, out.Reason = Stale, tr.delay(now)
	default:
		out.State, out.Reason = Pending, tr.delay(now)
	}
	return out
}

// Lagging gives the resources of a type that the client is not known to hold in
// their current form, in no order. A type of which nothing is known before the first ACK gives
// one line without a name.
func (s *Stream) Lagging(t mesh.Type, now time.Time, cur Current) iter.Seq2[string, Holding] {
	return func(yield func(string, Holding) bool) {
		tr := s.types[t]
		if tr == nil || !tr.Subscribed() {
			return
		}
		if tr.unproven && !yield("", s.holding(tr, exception{}, false, now, "")) {
			return
		}
		for name, e := range tr.exceptions {
			if h := s.holding(tr, e, true, now, cur.Version(t, name)); !h.Latest && !yield(name.Value(), h) {
				return
			}
		}
	}
}
