package ack

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// flight is the response that waits for its answer.
type flight struct {
	nonce uint64
	// news: it carried names that were exceptions when it was sent.
	news    bool
	at      time.Time
	carried []Carried
	// overtook are the names that responses carried which it overtook, and it does not: they
	// are on their way as well. nil for none.
	overtook map[mesh.Name]struct{}
	// dropped are those on their way that were dropped while they waited; nil for none.
	dropped map[mesh.Name]struct{}
}

// follow takes over what is on its way from the response before, which nobody waits for any more.
func (f *flight) follow(before *flight) {
	if before == nil {
		return
	}
	f.overtook, f.dropped = before.overtook, before.dropped
	for _, c := range before.carried {
		if f.overtook == nil {
			f.overtook = make(map[mesh.Name]struct{})
		}
		f.overtook[c.Name] = struct{}{}
	}
	for _, c := range f.carried {
		delete(f.overtook, c.Name)
		delete(f.dropped, c.Name)
	}
}

// drops notes that a name of which a response may be on its way was dropped.
func (f *flight) drops(name mesh.Name) {
	if f.dropped == nil {
		f.dropped = make(map[mesh.Name]struct{})
	}
	f.dropped[name] = struct{}{}
}

// Abandoned tells whether the response in flight, or one that it overtook, carries
// the name, and it was dropped since.
func (t *Tracker) Abandoned(name mesh.Name) bool {
	if t.flight == nil {
		return false
	}
	_, ok := t.flight.dropped[name]
	return ok
}

// Forgotten gives the names that the response in flight, or one that it overtook,
// carries and that are no exceptions any more: the client may come to hold what nobody follows.
func (t *Tracker) Forgotten() []mesh.Name {
	if t.flight == nil {
		return nil
	}
	var out []mesh.Name
	for _, c := range t.flight.carried {
		if !t.Lacks(c.Name) {
			out = append(out, c.Name)
		}
	}
	for name := range t.flight.overtook {
		if !t.Lacks(name) {
			out = append(out, name)
		}
	}
	return out
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

// InFlight tells whether a response waits for its answer, and since when. One
// that was overtaken counts: overtaking does not give the node more time.
func (t *Tracker) InFlight() (since time.Time, nonce uint64, ok bool) {
	if t.flight == nil {
		return time.Time{}, 0, false
	}
	return t.waiting(), t.flight.nonce, true
}

func (t *Tracker) waiting() time.Time {
	if t.waitingSince.IsZero() {
		return t.flight.at
	}
	return t.waitingSince
}

// doubtedSince is since when a node of which nothing is known yet has not answered; now
// where nothing waits for it.
func (t *Tracker) doubtedSince(now time.Time) time.Time {
	if t.flight == nil {
		return now
	}
	return t.waiting()
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
	if t.flight == nil {
		t.muteSince = at
	}
	before := t.flight
	t.giveUp()
	t.urgent, t.retryTurn, t.sentAt = false, false, at
	if t.waitingSince.IsZero() {
		t.waitingSince = at
	}
	t.flight = &flight{nonce: nonce, at: at, carried: carried}
	t.flight.follow(before)
	for _, c := range carried {
		if e, ok := t.exceptions[c.Name]; ok {
			if e.phase == due {
				t.due--
			}
			e.phase, e.retry, e.want, e.nonce = sent, false, c.Version, nonce
			e.sentNewer = e.newer
			e.unsure = e.unsure || c.Version != e.held
			t.exceptions[c.Name] = e
			t.flight.news = true
		}
	}
}

// Ack takes the ACK of a response; false when it is not the one in flight.
func (t *Tracker) Ack(nonce uint64, at time.Time) bool {
	f := t.flight
	if f == nil || f.nonce != nonce {
		return false
	}
	t.flight, t.ackedAt, t.waitingSince = nil, at, time.Time{}
	t.refusedHeld, t.unproven = false, false
	for _, c := range f.carried {
		e, ok := t.exceptions[c.Name]
		switch {
		case !ok:
		case e.phase == sent && e.nonce == nonce:
			t.clear(c.Name, e)
		case e.nonce == nonce: // due again meanwhile
			e.held, e.unsure, e.overtaken, e.told = c.Version, false, false, false
			e.newer, e.sentNewer = e.newer-e.sentNewer, 0
			t.exceptions[c.Name] = e
		}
	}
	for _, e := range t.exceptions {
		t.retryTurn = t.retryTurn || e.phase == due && e.retry
	}
	return true
}

// Nack takes the refusal of a response; false when it is not the one in
// flight. What was new in it counts as refused, except what is due again. When
// nothing was new (a probe, a repeated resource), all of it is, and the type as
// such until the next ACK: a NACK at the held version is still a NACK.
func (t *Tracker) Nack(nonce uint64, at time.Time, version mesh.Version, message string) bool {
	f := t.flight
	if f == nil || f.nonce != nonce {
		return false
	}
	t.flight, t.waitingSince = nil, time.Time{}
	t.nack = &refusal{at: at, message: message, version: version, nonce: nonce}
	for _, c := range f.carried {
		if e, ok := t.exceptions[c.Name]; ok && e.phase == sent && e.nonce == nonce {
			e.phase, e.asked = refused, false
			t.exceptions[c.Name] = e
		}
	}
	if !f.news {
		t.refusedHeld = true
		t.refuse(f, at)
	}
	return true
}

func (t *Tracker) refuse(f *flight, at time.Time) {
	for _, c := range f.carried {
		if _, ok := t.exceptions[c.Name]; ok || !t.Wants(c.Name) {
			continue // it has changed, or is not subscribed to any more
		}
		if t.exceptions == nil {
			t.exceptions = make(map[mesh.Name]exception)
		}
		t.exceptions[c.Name] = exception{phase: refused, held: c.Version, want: c.Version, nonce: f.nonce, since: at}
	}
}
