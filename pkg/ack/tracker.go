package ack

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Tracker follows one type on one stream.
type Tracker struct {
	wildcard bool
	names    map[mesh.Name]struct{}
	seen     mesh.Generation
	// exceptions: name → why the name is not held as of seen. nil when empty.
	exceptions map[mesh.Name]exception
	due        int // exceptions in phase due
	urgent     bool
	flight     *flight
	sentAt     time.Time
	ackedAt    time.Time
	nack       *refusal
}

type phase uint8

const (
	due phase = iota
	sent
	refused
)

type exception struct {
	phase phase
	// retry: due only because a name of the same refused response changed.
	retry bool
	// held is what the node has; "" for nothing.
	held mesh.Version
	// want is what was sent or refused; "" for a removal.
	want mesh.Version
	// nonce is the response that carried want.
	nonce uint64
	// since is when held went out of date.
	since time.Time
}

// flight is the response that waits for its answer.
type flight struct {
	nonce   uint64
	at      time.Time
	carried []Carried
	// dropped are those carried that were dropped while they waited; nil for none.
	dropped map[mesh.Name]struct{}
}

// Carried is one name in a response: the version sent, or "" for a removal.
type Carried struct {
	Name    mesh.Name
	Version mesh.Version
}

// refusal is the last NACK.
type refusal struct {
	at      time.Time
	message string
	version mesh.Version
	nonce   uint64
}

// Wildcard tells whether the stream subscribes to every resource of the type.
func (t *Tracker) Wildcard() bool { return t.wildcard }

// Names are the names that were asked for; not to be changed.
func (t *Tracker) Names() map[mesh.Name]struct{} { return t.names }

// Named tells whether the name was asked for by name.
func (t *Tracker) Named(name mesh.Name) bool {
	_, ok := t.names[name]
	return ok
}

// Subscribed tells whether the stream asks for anything of the type.
func (t *Tracker) Subscribed() bool { return t.wildcard || len(t.names) > 0 }

// Wants tells whether a name is subscribed to.
func (t *Tracker) Wants(name mesh.Name) bool { return t.wildcard || t.Named(name) }

// Seen is the generation up to which changes are taken into account.
func (t *Tracker) Seen() mesh.Generation { return t.seen }

// SetSeen moves it on. Every change up to g must have been passed to Changed.
func (t *Tracker) SetSeen(g mesh.Generation) { t.seen = g }

// SetWildcard sets or takes back the wildcard.
func (t *Tracker) SetWildcard(on bool) { t.wildcard = on }

// Add adds a name to those asked for; false when it was there already.
func (t *Tracker) Add(name mesh.Name) bool {
	if t.Named(name) {
		return false
	}
	if t.names == nil {
		t.names = make(map[mesh.Name]struct{})
	}
	t.names[name] = struct{}{}
	return true
}

// Remove takes a name back; false when it was not there.
func (t *Tracker) Remove(name mesh.Name) bool {
	if !t.Named(name) {
		return false
	}
	if delete(t.names, name); len(t.names) == 0 {
		t.names = nil
	}
	return true
}

// Ask makes a name due because the node asks for it, whatever it holds. held
// is what the node is known to hold from elsewhere (initial_resource_versions),
// used only if the name is no exception yet.
func (t *Tracker) Ask(name mesh.Name, held mesh.Version, at time.Time) {
	e, known := t.exceptions[name]
	if !known {
		e = exception{held: held, since: at}
	}
	t.setDue(name, e, known)
}

// Hurry lets the due names go out although a response is in flight: the node
// has asked again, so that response counts as lost and its nonce as old.
func (t *Tracker) Hurry() { t.urgent = true }

// Changed makes a name due because the resource is no longer as the node holds
// it. was is the version before; at is when it went out of date.
func (t *Tracker) Changed(name mesh.Name, was mesh.Version, at time.Time) {
	e, known := t.exceptions[name]
	if !known {
		e = exception{held: was, since: at}
	}
	if known && e.phase == refused {
		t.retryOthers(name, e.nonce)
	}
	t.setDue(name, e, known)
}

// Drop forgets that a name is an exception: it is no longer subscribed to, or
// there is nothing that could be sent for it.
func (t *Tracker) Drop(name mesh.Name) {
	e, ok := t.exceptions[name]
	if !ok {
		return
	}
	if f := t.flight; f != nil && e.nonce == f.nonce {
		if f.dropped == nil {
			f.dropped = make(map[mesh.Name]struct{})
		}
		f.dropped[name] = struct{}{}
	}
	t.clear(name, e)
}

// retryOthers makes due again what was refused together with a name that has
// now changed: one bad resource may have kept the node from applying the rest.
func (t *Tracker) retryOthers(changed mesh.Name, nonce uint64) {
	for name, e := range t.exceptions {
		if name != changed && e.phase == refused && e.nonce == nonce {
			e.phase, e.retry = due, true
			t.exceptions[name] = e
			t.due++
		}
	}
}

func (t *Tracker) setDue(name mesh.Name, e exception, known bool) {
	if !known || e.phase != due {
		t.due++
	}
	e.phase, e.retry = due, false
	if t.exceptions == nil {
		t.exceptions = make(map[mesh.Name]exception)
	}
	t.exceptions[name] = e
}

func (t *Tracker) clear(name mesh.Name, e exception) {
	if e.phase == due {
		t.due--
	}
	if delete(t.exceptions, name); len(t.exceptions) == 0 {
		t.exceptions = nil // a map never shrinks; most of the time there are no exceptions
	}
}

// Sendable tells whether there are names to send now: some are due, and no
// response is in flight, or the due ones may overtake it.
func (t *Tracker) Sendable() bool {
	return t.due > 0 && (t.flight == nil || t.urgent)
}

// InFlight tells whether a response waits for its answer, and since when.
func (t *Tracker) InFlight() (since time.Time, nonce uint64, ok bool) {
	if t.flight == nil {
		return time.Time{}, 0, false
	}
	return t.flight.at, t.flight.nonce, true
}

// Abandoned tells whether the response in flight carries the name, and it was
// dropped since.
func (t *Tracker) Abandoned(name mesh.Name) bool {
	if t.flight == nil {
		return false
	}
	_, ok := t.flight.dropped[name]
	return ok
}

// Due gives the names to send next, in no order. A response in flight is given
// up first, so that what it carried is among them. Names that only get another
// try after a refusal come when no others are due.
func (t *Tracker) Due() []mesh.Name {
	t.giveUp()
	out := make([]mesh.Name, 0, t.due)
	for _, retry := range []bool{false, true} {
		for name, e := range t.exceptions {
			if e.phase == due && e.retry == retry {
				out = append(out, name)
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// Holds tells what the node is known to hold of a due name: whether it has, or
// may have, any form of it.
func (t *Tracker) Holds(name mesh.Name) bool {
	e, ok := t.exceptions[name]
	return !ok || e.held != "" || e.nonce != 0
}

func (t *Tracker) giveUp() {
	if t.flight == nil {
		return
	}
	for _, c := range t.flight.carried {
		if e, ok := t.exceptions[c.Name]; ok && e.phase == sent {
			t.setDue(c.Name, e, true)
		}
	}
	t.flight = nil
}

// Sent records a response, which may carry nothing (a probe). Names that are no
// exceptions may be among those carried; they stay held.
func (t *Tracker) Sent(nonce uint64, at time.Time, carried []Carried) {
	t.giveUp()
	t.urgent, t.sentAt = false, at
	t.flight = &flight{nonce: nonce, at: at, carried: carried}
	for _, c := range carried {
		if e, ok := t.exceptions[c.Name]; ok {
			if e.phase == due {
				t.due--
			}
			e.phase, e.retry, e.want, e.nonce = sent, false, c.Version, nonce
			t.exceptions[c.Name] = e
		}
	}
}

// Ack takes the ACK of a response; false when it is not the one in flight.
func (t *Tracker) Ack(nonce uint64, at time.Time) bool {
	f := t.flight
	if f == nil || f.nonce != nonce {
		return false
	}
	t.flight, t.ackedAt = nil, at
	for _, c := range f.carried {
		e, ok := t.exceptions[c.Name]
		switch {
		case !ok:
		case e.phase == sent && e.nonce == nonce:
			t.clear(c.Name, e)
		case e.nonce == nonce: // due again meanwhile
			e.held = c.Version
			t.exceptions[c.Name] = e
		}
	}
	return true
}

// Nack takes the refusal of a response; false when it is not the one in
// flight. What was new in it counts as refused, except what is due again. When
// nothing was new (a probe, a repeated resource), all of it is: a NACK at the
// held version is still a NACK.
func (t *Tracker) Nack(nonce uint64, at time.Time, version mesh.Version, message string) bool {
	f := t.flight
	if f == nil || f.nonce != nonce {
		return false
	}
	t.flight = nil
	t.nack = &refusal{at: at, message: message, version: version, nonce: nonce}
	fresh := false
	for _, c := range f.carried {
		e, ok := t.exceptions[c.Name]
		fresh = fresh || ok
		if ok && e.phase == sent && e.nonce == nonce {
			e.phase = refused
			t.exceptions[c.Name] = e
		}
	}
	if !fresh {
		t.refuse(f, at)
	}
	return true
}

func (t *Tracker) refuse(f *flight, at time.Time) {
	for _, c := range f.carried {
		if t.exceptions == nil {
			t.exceptions = make(map[mesh.Name]exception)
		}
		t.exceptions[c.Name] = exception{phase: refused, held: c.Version, want: c.Version, nonce: f.nonce, since: at}
	}
}

// DropUnnamed forgets the exceptions that only the wildcard covered.
func (t *Tracker) DropUnnamed() {
	for name, e := range t.exceptions {
		if !t.Named(name) {
			t.clear(name, e)
		}
	}
}
