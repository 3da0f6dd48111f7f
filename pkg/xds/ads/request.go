package ads

import (
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Request is what a client sent, of either variant.
type Request struct {
	Type  mesh.Type
	Nonce string
	// Refused is true where error_detail is present: a NACK, whatever the
	// versions say ("ACK and NACK semantics summary").
	Refused bool
	// Message is error_detail's.
	Message string

	// Names is resource_names (SotW).
	Names []string

	// Subscribe, Unsubscribe and Initial (name → version) are those of the incremental variant.
	Subscribe, Unsubscribe []string
	Initial                map[string]string
}

// Answer is what a request says of a response.
type Answer uint8

// The answers.
const (
	// AnswerNone: the request answers nothing.
	AnswerNone Answer = iota
	Acked
	Nacked
	// AnswerOld: it answers a response that was overtaken, or one of another stream.
	AnswerOld
)

// Outcome is what a request came to.
type Outcome struct {
	Answer Answer
	// Version is that of the response answered.
	Version mesh.Version
	// SentAt is when the response answered was handed out.
	SentAt time.Time
	// Changes are those that the client holds all of since this ACK, each once
	// on a stream.
	Changes []Change
}

// Request takes what the client sent.
func (s *Stream) Request(r Request, now time.Time) Outcome {
	ts := s.types[r.Type]
	first := ts == nil
	if first {
		if r.Refused && len(r.Names)+len(r.Subscribe) == 0 {
			// A NACK of a type that was never asked for is no wildcard.
			return Outcome{Answer: AnswerOld}
		}
		ts = &typeState{owed: true}
		s.types[r.Type] = ts
		if tr := s.acks.Track(r.Type, s.view.Generation()); s.whole(r.Type) {
			tr.Distrust() // what was deleted meanwhile is told by its absence only
		}
	}
	tr, idle := s.acks.Type(r.Type), s.acks.Idle()
	out := s.answer(r, ts, tr, now)
	if s.cfg.Delta {
		s.subscribeDelta(r, ts, tr, first, now)
	} else if out.Answer != AnswerOld || first {
		// A SotW request with an old nonce is void as a whole: the client will
		// answer the newer response with its newest names ("Resource updates").
		s.subscribeSotW(r, ts, tr, now)
	} else {
		s.overlook(r, ts, tr, now)
	}
	if idle && tr.Subscribed() {
		s.acks.AskedAt = now
	}
	s.bound(len(r.Initial))
	ts.owed = ts.owed && tr.Subscribed()
	return out
}

// maxTypes bounds the types of one stream, unknown ones included. xDS has a
// dozen, and each step of a stream looks at all of them.
const maxTypes = 64

// bound ends a stream that subscribes to too many names or types, or says that
// it holds too many. Types count as names too: each costs state.
func (s *Stream) bound(held int) {
	if len(s.types) > maxTypes || s.cfg.MaxNames > 0 && max(s.names+len(s.types), held) > s.cfg.MaxNames {
		s.closing = CloseTooManyNames
	}
}

func (s *Stream) answer(r Request, ts *typeState, tr *ack.Tracker, now time.Time) Outcome {
	if r.Nonce == "" {
		if ts.last == 0 || s.cfg.Delta {
			return Outcome{}
		}
		return Outcome{Answer: AnswerOld}
	}
	n := s.parseNonce(r.Nonce)
	if n == 0 || n != ts.last {
		return Outcome{Answer: AnswerOld}
	}
	out := Outcome{Version: ts.version, SentAt: ts.sentAt}
	switch {
	case r.Refused && tr.Nack(n, now, ts.version, r.Message):
		out.Answer = Nacked
	case !r.Refused && tr.Ack(n, now):
		out.Answer, out.Changes = Acked, s.completed(ts.changes)
	default:
		return out // answered before: the request only changes subscriptions
	}
	s.acks.ConfirmedAt = now
	return out
}

// subscribeDelta takes the subscription part of an incremental request, which
// holds whatever its nonce ("Incremental xDS").
func (s *Stream) subscribeDelta(r Request, ts *typeState, tr *ack.Tracker, first bool, now time.Time) {
	if !first {
		r.Initial = nil // counts only where it says what the last stream left
	}
	// The wildcard comes first: what it goes on to cover is not forgotten.
	wild := first && len(r.Subscribe) == 0 && len(r.Unsubscribe) == 0 || slices.Contains(r.Subscribe, "*")
	if wild {
		s.askAll(r.Type, tr, r.Initial, now)
	}
	if slices.Contains(r.Unsubscribe, "*") {
		s.setWildcard(r.Type, tr, wild)
	}
	gone, _ := interned(r.Unsubscribe)
	for _, name := range s.remove(r.Type, tr, gone) {
		if tr.Wildcard() {
			// The wildcard may or may not cover it: the client is told
			// ("Unsubscribing From Resources").
			tr.Ask(name, s.view.Version(r.Type, name), now)
		}
	}
	asked, _ := interned(r.Subscribe)
	fresh := make(map[mesh.Name]bool, len(asked))
	for _, name := range s.add(r.Type, tr, asked) {
		fresh[name] = true
	}
	ts.explicit = ts.explicit || len(r.Subscribe) > 0
	for _, name := range asked {
		text, added := name.Value(), fresh[name]
		delete(fresh, name) // one that stands there twice is asked for again
		if r.Initial[text] != "" {
			continue // compared below
		}
		tr.Ask(name, s.heldIf(!added, r.Type, name), now)
		if !added || tr.Abandoned(name) {
			tr.Hurry(true)
		}
	}
	s.initial(r, tr, now)
}

// heldIf gives the current version for a name that was subscribed to already
// and is no exception: the client holds it.
func (s *Stream) heldIf(was bool, t mesh.Type, name mesh.Name) mesh.Version {
	if was {
		return s.view.Version(t, name)
	}
	return ""
}

// initial compares what a reconnecting client holds with what it should hold
// ("Incremental xDS", initial_resource_versions).
func (s *Stream) initial(r Request, tr *ack.Tracker, now time.Time) {
	for text, version := range r.Initial {
		name := mesh.Intern(text)
		if held := mesh.Version(version); text != "*" && held != "" && tr.Wants(name) && held != s.view.Version(r.Type, name) {
			tr.Ask(name, held, now)
			tr.Changed(name, ack.Change{Was: held, Now: s.view.Version(r.Type, name), At: now}) // while the client had no stream
		}
	}
}

// askAll subscribes to everything, and makes due what the client is not known to hold.
func (s *Stream) askAll(t mesh.Type, tr *ack.Tracker, initial map[string]string, now time.Time) {
	again := tr.Wildcard()
	s.setWildcard(t, tr, true)
	for _, b := range s.view.All(t) {
		if initial[b.Name.Value()] != "" && !again {
			continue
		}
		tr.Ask(b.Name, s.heldIf(again || tr.Named(b.Name), t, b.Name), now)
	}
	for _, name := range tr.Forgotten() {
		if s.view.Body(t, name) == nil {
			tr.Ask(name, "", now) // it is on its way, and the client will keep it
		}
	}
	if again {
		tr.Hurry(true)
	}
}

// subscribeSotW takes resource_names, which is the whole subscription.
func (s *Stream) subscribeSotW(r Request, ts *typeState, tr *ack.Tracker, now time.Time) {
	ts.explicit = ts.explicit || len(r.Names) > 0
	want, wild := wanted(r.Names)
	wild = wild || !ts.explicit
	if wild == tr.Wildcard() && slices.Equal(want, tr.Names()) {
		return
	}
	if wild && !tr.Wildcard() { // first, so that what it goes on to cover is not forgotten
		s.setWildcard(r.Type, tr, true)
		s.askAllSotW(r.Type, tr, now)
		ts.owed = ts.owed || s.whole(r.Type) // nothing is an answer, too
	}
	s.remove(r.Type, tr, slices.DeleteFunc(slices.Clone(tr.Names()), func(name mesh.Name) bool {
		_, keep := slices.BinarySearchFunc(want, name, compareNames)
		return keep
	}))
	for _, name := range s.add(r.Type, tr, want) {
		if s.view.Body(r.Type, name) != nil || s.sendsAbsence(r.Type) {
			tr.Ask(name, "", now)
		}
	}
	s.setWildcard(r.Type, tr, wild) // last, so that what is named now is not forgotten, nor since when it is lacking
}

// overlook takes what a void request drops: if the client wants it back by the
// time of its answer, nothing but this tells that it has thrown it away. What
// it does not want back is forgotten then.
func (s *Stream) overlook(r Request, ts *typeState, tr *ack.Tracker, now time.Time) {
	want, wild := wanted(r.Names)
	_, _, waiting := tr.InFlight()
	foreign := r.Nonce != "" && s.parseNonce(r.Nonce) == 0
	if !waiting || foreign || wild || !ts.explicit && len(r.Names) == 0 {
		return
	}
	held := tr.Names()
	if tr.Wildcard() {
		held = s.existing(r.Type)
	}
	for _, name := range held {
		_, keep := slices.BinarySearchFunc(want, name, compareNames)
		if !keep && (s.view.Body(r.Type, name) != nil || s.sendsAbsence(r.Type)) {
			tr.Lose(name, s.view.Version(r.Type, name), now)
		}
	}
}

// existing gives the names of all resources of a type that the client may see.
func (s *Stream) existing(t mesh.Type) []mesh.Name {
	all := s.view.All(t)
	names := make([]mesh.Name, len(all))
	for i, b := range all {
		names[i] = b.Name
	}
	return names
}

// wanted gives the names of a request, sorted and each once, and whether "*" is among them.
func wanted(texts []string) (names []mesh.Name, wild bool) {
	names, wild = interned(texts)
	return slices.Compact(sorted(names)), wild
}

// interned gives the names of a request as they stand there, and whether "*" is among them.
func interned(texts []string) (names []mesh.Name, wild bool) {
	names = make([]mesh.Name, 0, len(texts))
	for _, text := range texts {
		if text == "*" {
			wild = true
			continue
		}
		names = append(names, mesh.Intern(text))
	}
	return names, wild
}

func (s *Stream) askAllSotW(t mesh.Type, tr *ack.Tracker, now time.Time) {
	for _, b := range s.view.All(t) {
		tr.Ask(b.Name, "", now)
	}
}

// add subscribes to names, all at once since there may be a hundred thousand, and
// gives those that are new.
func (s *Stream) add(t mesh.Type, tr *ack.Tracker, names []mesh.Name) []mesh.Name {
	added := tr.Add(names...)
	s.names += len(added)
	for _, name := range added {
		s.interest = append(s.interest, InterestChange{Type: t, Name: name, On: true})
	}
	return added
}

// remove is the opposite, and gives those that were there.
func (s *Stream) remove(t mesh.Type, tr *ack.Tracker, names []mesh.Name) []mesh.Name {
	removed := tr.Remove(names...)
	s.names -= len(removed)
	for _, name := range removed {
		if !tr.Wildcard() {
			tr.Drop(name)
		}
		s.interest = append(s.interest, InterestChange{Type: t, Name: name})
	}
	return removed
}

func (s *Stream) setWildcard(t mesh.Type, tr *ack.Tracker, on bool) {
	if tr.Wildcard() == on {
		return
	}
	tr.SetWildcard(on)
	s.interest = append(s.interest, InterestChange{Type: t, All: true, On: on})
	if !on {
		tr.DropUnnamed()
	}
}
