package ads

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

// Config of a Stream.
type Config struct {
	// Delta is true for the incremental protocol variant.
	Delta  bool
	Policy ack.Policy
	// NoncePrefix makes the nonces of this stream unlike those of any other.
	NoncePrefix string
	// MaxNames bounds the names subscribed to on the stream, all types together.
	MaxNames int
	// MaxBytes bounds a response where the protocol allows to send part of what
	// is due: everywhere but in SotW LDS and CDS. At least one resource is sent.
	MaxBytes int
}

// CloseReason is why the server ends a stream; also the metric label.
type CloseReason string

// The close reasons.
const (
	// CloseAckTimeout: a response or a probe was not answered in time.
	CloseAckTimeout CloseReason = "ack_timeout"
	// CloseSendBlocked: the client did not take a response off the transport in time.
	CloseSendBlocked CloseReason = "send_blocked"
	// CloseTooFarBehind: the change log no longer reaches back to what a wildcard holds.
	CloseTooFarBehind CloseReason = "too_far_behind"
	// CloseTooManyNames: the client subscribes to more names than MaxNames, or to more than 64 types.
	CloseTooManyNames CloseReason = "too_many_names"
	// CloseNoRequest: the client opened a stream and did not say who it is in time.
	// It is for whoever waits for the first request; a Stream never gives it.
	CloseNoRequest CloseReason = "no_request"
)

// CloseReasons gives all of them.
func CloseReasons() []CloseReason {
	return []CloseReason{CloseAckTimeout, CloseSendBlocked, CloseTooFarBehind, CloseTooManyNames, CloseNoRequest}
}

// Silent tells whether a client's silence is the reason.
func (r CloseReason) Silent() bool {
	switch r {
	case CloseAckTimeout, CloseSendBlocked, CloseNoRequest:
		return true
	case CloseTooFarBehind, CloseTooManyNames:
	}
	return false
}

// Stream is one xDS stream. One goroutine owns it.
type Stream struct {
	cfg  Config
	acks *ack.Stream
	view snapshot.View
	// types: what this package keeps beside the tracker of each type.
	types map[mesh.Type]*typeState
	names int
	nonce uint64
	// handed is when Next last gave a response; zero once Sent was called.
	handed time.Time
	// probeDue is set by Tick and taken by Next; probed is when that last was.
	probeDue bool
	probed   time.Time
	// expected is the last Deadline; mercy is until when nothing is judged.
	expected, mercy time.Time
	closing         CloseReason
	interest        []InterestChange
}

type typeState struct {
	// last is the nonce of the last response, 0 for none.
	last uint64
	// owed: the client must get a response even if nothing is due.
	owed bool
	// explicit: a name was sent on this stream; from then on an empty list means none.
	explicit bool
	// sentAt is when the last response was handed out.
	sentAt time.Time
	// changes are those in the response in flight.
	changes []Change
	version mesh.Version
}

// InterestChange is what the stream wants, or no longer wants, to be woken for.
type InterestChange struct {
	Type mesh.Type
	// All is for every name of the type; Name counts otherwise.
	All  bool
	Name mesh.Name
	On   bool
}

// Response is what to send.
type Response struct {
	Type  mesh.Type
	Nonce string
	// Version is the version of all that the response carries.
	Version   mesh.Version
	Resources []*snapshot.Body
	// Removed are names that do not exist (incremental only).
	Removed []string
	// Carried are the names that the response settles, with the version of each: of a
	// SotW response that must be whole, only what the client lacked. Not to be changed.
	Carried []ack.Carried
	// Generation is that of the view that the response was made from.
	Generation mesh.Generation
	// Probe tells that nothing has changed: the response only asks for an answer.
	Probe bool
}

// New begins a stream at now, with what its client should see.
func New(c Config, view snapshot.View, now time.Time) *Stream {
	return &Stream{
		cfg: c, acks: ack.NewStream(c.Policy, now), view: view,
		types: make(map[mesh.Type]*typeState, len(mesh.GeneratedTypes)),
	}
}

// Acks is what the client was sent and holds; to be read only.
func (s *Stream) Acks() *ack.Stream { return s.acks }

// ConfirmedElsewhere says when another stream of the client last confirmed
// another type; zero for never.
func (s *Stream) ConfirmedElsewhere(at time.Time) { s.acks.Elsewhere = at }

// View is what the stream last knew of the store.
func (s *Stream) View() snapshot.View { return s.view }

// TakeInterest gives the changes of interest since the last call, in order. The
// owner passes them to the store and then calls Published.
func (s *Stream) TakeInterest() []InterestChange {
	out := s.interest
	s.interest = nil
	return out
}

// Published takes the newest view.
func (s *Stream) Published(view snapshot.View) {
	if view.Generation() < s.view.Generation() {
		return
	}
	s.view = view
	for t := range s.types {
		tr := s.acks.Type(t)
		if !tr.Subscribed() {
			tr.SetSeen(view.Generation()) // nothing can have been missed
			continue
		}
		changes, ok := view.Since(t, tr.Seen())
		switch {
		case ok:
		case tr.Wildcard():
			s.closing = CloseTooFarBehind
			return
		default: // others' changes have filled the log; the few names are looked at one by one
			changes = view.SinceNamed(t, tr.Seen(), tr.Names())
		}
		for _, c := range changes {
			if tr.Wants(c.Name) {
				s.changed(t, tr, c)
			}
		}
		tr.SetSeen(view.Generation())
	}
}

func (s *Stream) changed(t mesh.Type, tr *ack.Tracker, c snapshot.Change) {
	if c.Body == nil && !s.sendsAbsence(t) {
		tr.Drop(c.Name)
		return
	}
	tr.Changed(c.Name, ack.Change{Was: c.Was, Now: s.view.Version(t, c.Name), At: c.At})
	tr.Passed(c.Name, c.Versions-1)
}

// whole tells whether every response must hold all resources of the type:
// SotW LDS and CDS ("Grouping Resources into Responses").
func (s *Stream) whole(t mesh.Type) bool {
	return !s.cfg.Delta && (t == mesh.TypeListener || t == mesh.TypeCluster)
}

// TellsAbsence tells whether a client of this stream can be told that a resource
// of a type does not exist.
func (s *Stream) TellsAbsence(t mesh.Type) bool { return s.sendsAbsence(t) }

// sendsAbsence tells whether the variant can say that a resource does not
// exist ("Deleting Resources").
func (s *Stream) sendsAbsence(t mesh.Type) bool { return s.cfg.Delta || s.whole(t) }

// Resend makes the named resources go out again, if the client subscribes to
// them, before any answer to what is in flight. It reports whether it does.
func (s *Stream) Resend(t mesh.Type, name mesh.Name, now time.Time) bool {
	tr := s.acks.Type(t)
	if tr == nil || !tr.Wants(name) || s.view.Body(t, name) == nil && !s.sendsAbsence(t) {
		return false
	}
	tr.Ask(name, s.view.Version(t, name), now)
	tr.Hurry(false)
	return true
}

// Sent says that the transport has taken the last response of Next.
func (s *Stream) Sent() { s.handed = time.Time{} }

// Tick looks at the time. A reason other than "" says that the stream must end.
func (s *Stream) Tick(now time.Time) CloseReason {
	if s.closing != "" {
		return s.closing
	}
	if reason := s.judge(now); reason != "" {
		return reason
	}
	s.probeDue = !now.Before(s.nextProbe())
	return ""
}

// judge gives the reason to end the stream for its client's silence. A Tick that
// comes far too late says that this process stood still, not that the client
// did: its answer may be here unread, and gets time to be read.
func (s *Stream) judge(now time.Time) CloseReason {
	if !s.expected.IsZero() && now.Sub(s.expected) > s.patience() {
		s.mercy = now.Add(s.patience())
	}
	switch {
	case now.Before(s.mercy):
		return ""
	case !s.handed.IsZero() && now.Sub(s.handed) >= s.cfg.Policy.Patience():
		return CloseSendBlocked
	}
	if _, overdue := s.acks.Overdue(now); overdue {
		return CloseAckTimeout
	}
	return ""
}

// patience is the least time between two looks at something that is overdue.
func (s *Stream) patience() time.Duration { return s.cfg.Policy.AckTimeout / 4 }

// nextProbe is when the client is to be asked for a sign of life: a while after
// it gave one, or was asked for one.
func (s *Stream) nextProbe() time.Time {
	last := s.lastHeard()
	for t := range s.types {
		// Who withholds an ACK must show by another type that it lives.
		if _, _, waiting := s.acks.Type(t).InFlight(); waiting && s.cfg.Policy.Withholds(t) {
			if at := s.acks.ConfirmedBeside(t); !at.IsZero() {
				last = earlier(last, at)
			}
		}
	}
	if s.probed.After(last) {
		last = s.probed
	}
	return last.Add(s.cfg.Policy.ProbeInterval)
}

func (s *Stream) lastHeard() time.Time {
	if s.acks.ConfirmedAt.IsZero() {
		return s.acks.ConnectedAt
	}
	return s.acks.ConfirmedAt
}

// Deadline is when Tick should be called next.
func (s *Stream) Deadline(now time.Time) time.Time {
	next := s.nextProbe()
	if !s.handed.IsZero() {
		next = earlier(next, s.handed.Add(s.cfg.Policy.Patience()))
	}
	for t := range s.types {
		if since, _, ok := s.acks.Type(t).InFlight(); ok {
			next = earlier(next, since.Add(s.cfg.Policy.Patience()))
		}
	}
	// A withheld ACK, or a probe that cannot be sent now, is looked at again later.
	if !next.After(now) {
		next = now.Add(s.patience())
	}
	s.expected = next
	return next
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (s *Stream) nonceText(n uint64) string {
	return s.cfg.NoncePrefix + strconv.FormatUint(n, 10)
}

// parseNonce gives 0 for a text that is not a nonce of this stream.
func (s *Stream) parseNonce(text string) uint64 {
	digits, ok := strings.CutPrefix(text, s.cfg.NoncePrefix)
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > s.nonce || text != s.nonceText(n) {
		return 0
	}
	return n
}

func sorted(names []mesh.Name) []mesh.Name {
	slices.SortFunc(names, compareNames)
	return names
}

func compareNames(a, b mesh.Name) int { return strings.Compare(a.Value(), b.Value()) }

// ResendAll makes everything that the client subscribes to go out again, or
// only what is called name unless that is "". It reports whether there is any.
func (s *Stream) ResendAll(name string, now time.Time) bool {
	sent := false
	for t := range s.types {
		for _, b := range s.subscribed(t, s.acks.Type(t)) {
			if name == "" || b.Name.Value() == name {
				sent = s.Resend(t, b.Name, now) || sent
			}
		}
	}
	return sent
}
