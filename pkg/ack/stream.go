package ack

import (
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Policy is when a node stops counting as fresh.
type Policy struct {
	// ProbeInterval is how long a stream may go without an answer before it is probed.
	ProbeInterval time.Duration
	// AckTimeout is how long a response may go unanswered.
	AckTimeout time.Duration
	// Prompt is for a client that is known to acknowledge every type at once: then
	// an ACK that stays away is a loss, of CDS and LDS too.
	Prompt bool
	// Extended is how long a response may go unanswered before the stream is ended,
	// where that is more than AckTimeout: for a node that was reset again and again.
	// It excuses no node in the audit.
	Extended time.Duration
}

// Withholds tells whether this client may withhold the ACK of a type.
func (p Policy) Withholds(t mesh.Type) bool { return !p.Prompt && Withholds(t) }

// Patience is how long a response may go unanswered before the stream is ended.
func (p Policy) Patience() time.Duration { return max(p.AckTimeout, p.Extended) }

// Current is what a node should hold; a snapshot.View is one.
type Current interface {
	Generation() mesh.Generation
	// Version is "" when there is no such resource.
	Version(mesh.Type, mesh.Name) mesh.Version
	Sum(mesh.Type, mesh.Name) uint64
	// Total gives the number of resources of a type and the XOR of their Sums.
	Total(mesh.Type) (int, uint64)
	// Cause is when and why the resource last changed; false when nothing is known.
	Cause(mesh.Type, mesh.Name) (time.Time, mesh.Cause, bool)
}

// Stream follows all types on one stream.
type Stream struct {
	Policy Policy
	// ConnectedAt is when the stream was opened, ConfirmedAt the last valid ACK
	// or NACK on it (the zero time before the first).
	ConnectedAt, ConfirmedAt time.Time
	// AskedAt is when the client, which had nothing to ask and to answer, last asked for
	// something: who asks for nothing is not probed, and is not late when it begins.
	AskedAt time.Time
	// Elsewhere is when another stream of the node last confirmed another type,
	// where each of its streams has one type; zero otherwise.
	Elsewhere time.Time
	types     map[mesh.Type]*Tracker
}

// NewStream begins at now.
func NewStream(p Policy, now time.Time) *Stream {
	return &Stream{Policy: p, ConnectedAt: now, types: make(map[mesh.Type]*Tracker, len(mesh.GeneratedTypes))}
}

// Type gives a type's tracker, or nil before Track.
func (s *Stream) Type(t mesh.Type) *Tracker { return s.types[t] }

// Track gives a type's tracker, made if need be, at generation g.
func (s *Stream) Track(t mesh.Type, g mesh.Generation) *Tracker {
	if s.types[t] == nil {
		s.types[t] = &Tracker{seen: g}
	}
	return s.types[t]
}

// Types gives the tracked types in the order in which resources are sent: the
// generated ones in make-before-break order, then others by name.
func (s *Stream) Types() []mesh.Type {
	out := make([]mesh.Type, 0, len(s.types))
	for _, t := range mesh.GeneratedTypes {
		if s.types[t] != nil {
			out = append(out, t)
		}
	}
	known := len(out)
	for t := range s.types {
		if !slices.Contains(mesh.GeneratedTypes[:], t) {
			out = append(out, t)
		}
	}
	slices.Sort(out[known:])
	return out
}

// Withholds tells whether there are clients that withhold the ACK of this type while
// they warm what it names: Envoy does so for a new cluster or listener, up to 15 s.
func Withholds(t mesh.Type) bool { return t == mesh.TypeCluster || t == mesh.TypeListener }

// ConfirmedBeside gives when a type other than t was last acknowledged, here or
// on another stream of the node; the zero time when none was.
func (s *Stream) ConfirmedBeside(t mesh.Type) time.Time {
	last := s.Elsewhere
	for other, tr := range s.types {
		if other != t && tr.ackedAt.After(last) {
			last = tr.ackedAt
		}
	}
	return last
}

// confirmedSince tells whether another type was acknowledged at or after a time.
func (s *Stream) confirmedSince(t mesh.Type, at time.Time) bool {
	last := s.ConfirmedBeside(t)
	return !last.IsZero() && !last.Before(at)
}

// Overdue gives the first type whose response went unanswered for longer than
// the policy's patience, or false. A withheld ACK is not overdue while another type
// of the stream is being confirmed. Who asks again gets time anew for the answer (Hurry),
// but not for ever: a client that only asks confirms nothing.
func (s *Stream) Overdue(now time.Time) (mesh.Type, bool) {
	mute := s.Policy.ProbeInterval + s.Policy.AckTimeout + s.Policy.Patience()
	for _, t := range s.Types() {
		tr := s.types[t]
		if tr.flight == nil || now.Sub(tr.waiting()) < s.Policy.Patience() && now.Sub(tr.muteSince) < mute {
			continue
		}
		if s.Policy.Withholds(t) && s.confirmedSince(t, now.Add(-s.Policy.ProbeInterval-s.Policy.AckTimeout)) {
			continue
		}
		return t, true
	}
	return "", false
}

// State gives how a type stands at now, without the resources that are behind.
func (s *Stream) State(t mesh.Type, now time.Time, cur Current) TypeState {
	tr := s.types[t]
	out := TypeState{
		Type: t.Short(), Wildcard: tr.wildcard,
		SentAt: timeOrNil(tr.sentAt), AckedAt: timeOrNil(tr.ackedAt), ConfirmedAt: timeOrNil(s.ConfirmedAt),
	}
	count, sum := tr.total(t, cur)
	out.Subscribed, out.CurrentVersion = count, mesh.SumVersion(sum)

	var since time.Time
	var refusedNames []string
	for name, e := range tr.exceptions {
		now := cur.Version(t, name)
		if e.phase == refused && e.want == now {
			refusedNames = append(refusedNames, name.Value())
		}
		held := e.holding(now)
		if held == now {
			continue
		}
		out.Behind++
		out.BehindVersions = max(out.BehindVersions, e.versions())
		sum ^= cur.Sum(t, name) ^ mesh.Sum(name, held)
		if at := e.behindSince(); since.IsZero() || at.Before(since) {
			since = at
		}
	}
	out.HeldVersion = mesh.SumVersion(sum)
	rejected := len(refusedNames) > 0 || tr.refusedHeld && tr.Subscribed()
	if tr.nack != nil && (rejected || tr.ackedAt.Before(tr.nack.at)) {
		slices.Sort(refusedNames)
		out.Nack = &Nack{Version: tr.nack.version, At: tr.nack.at, Message: tr.nack.message, Resources: refusedNames[:min(len(refusedNames), maxBehind)]}
	}
	s.judge(t, &out, now, since, rejected)
	return out
}

// Idle tells whether the client asks for nothing, and has nothing to answer.
func (s *Stream) Idle() bool {
	for _, tr := range s.types {
		if tr.flight != nil || tr.Subscribed() {
			return false
		}
	}
	return true
}

// quietSince is from when on the node owes a sign of life.
func (s *Stream) quietSince() time.Time {
	return latest(latest(s.ConnectedAt, s.ConfirmedAt), s.AskedAt)
}

func (s *Stream) judge(t mesh.Type, out *TypeState, now, since time.Time, refusedCurrent bool) {
	tr := s.types[t]
	confirmed := s.quietSince()
	silence := s.Policy.ProbeInterval + s.Policy.AckTimeout
	behind := out.Behind > 0 || tr.unproven
	if at := tr.doubtedSince(now); tr.unproven && (since.IsZero() || at.Before(since)) {
		since = at
	}
	behindFor := time.Duration(0)
	if behind {
		behindFor = max(now.Sub(since), 0)
	}
	warming := s.Policy.Withholds(t) && tr.flight != nil && s.confirmedSince(t, now.Add(-silence))
	switch {
	case !tr.Subscribed():
		out.State = Fresh // nothing is asked for, so nothing can be out of date
	case refusedCurrent:
		out.State, out.Reason = Rejected, out.Nack.Message
	case behind && behindFor > s.Policy.AckTimeout && !warming:
		out.State, out.StaleForSeconds = Stale, behindFor.Seconds()
		out.Reason = tr.delay(now)
	case now.Sub(confirmed) > silence && tr.Subscribed():
		// Who subscribes to nothing cannot be probed, and lacks nothing.
		out.State, out.StaleForSeconds = Stale, now.Sub(confirmed).Seconds()
		out.Reason = "nothing acknowledged for " + roundSeconds(now.Sub(confirmed))
	case behind:
		out.State, out.Reason = Pending, tr.delay(now)
	default:
		out.State = Fresh
	}
}

func (t *Tracker) delay(now time.Time) string {
	if t.flight != nil {
		return "sent " + roundSeconds(now.Sub(t.flight.at)) + " ago, no ACK"
	}
	return "not sent yet"
}

func (t *Tracker) total(typ mesh.Type, cur Current) (int, uint64) {
	if t.wildcard {
		return cur.Total(typ)
	}
	var sum uint64
	for _, name := range t.names {
		sum ^= cur.Sum(typ, name)
	}
	return len(t.names), sum
}

// maxBehind bounds the resources that one type names in the audit.
const maxBehind = 100

// Behind gives the resources that the node does not hold in their current
// form, sorted by name, at most 100.
func (s *Stream) Behind(t mesh.Type, cur Current) []BehindResource {
	var out []BehindResource
	for name, e := range s.types[t].exceptions {
		current := cur.Version(t, name)
		held := e.holding(current)
		if held == current {
			continue
		}
		b := BehindResource{Name: name.Value(), Held: held, Current: current, Versions: e.versions(), ChangedAt: e.since}
		if at, cause, ok := cur.Cause(t, name); ok {
			b.ChangedAt, b.Cause = at, cause.Object.String()
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b BehindResource) int { return strings.Compare(a.Name, b.Name) })
	return out[:min(len(out), maxBehind)]
}

// HoldsCurrent tells whether the node, if it subscribes to the name, is known
// to hold its current form.
func (s *Stream) HoldsCurrent(t mesh.Type, name mesh.Name, cur Current) (subscribed, current bool) {
	tr := s.types[t]
	if tr == nil || !tr.Wants(name) {
		return false, false
	}
	e, ok := tr.exceptions[name]
	now := cur.Version(t, name)
	return true, !tr.unproven && (!ok || e.holding(now) == now)
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func roundSeconds(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
