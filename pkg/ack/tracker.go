package ack

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Tracker follows one type on one stream.
type Tracker struct {
	wildcard bool
	names    names
	seen     mesh.Generation
	// exceptions: name → why the name is not held as of seen. nil when empty.
	exceptions map[mesh.Name]exception
	due        int // exceptions in phase due
	urgent     bool
	// retryTurn: names that get another try go before the others, once.
	retryTurn bool
	flight    *flight
	// waitingSince is when the first response was sent since the node's last
	// answer; zero when none waits.
	waitingSince time.Time
	// muteSince is the same, whatever the node has asked meanwhile; valid while flight is set.
	muteSince time.Time
	// refusedHeld: the last answer refused a response that had nothing new.
	refusedHeld bool
	// unproven: until its first ACK the node may hold things that nobody here knows of.
	unproven bool
	sentAt   time.Time
	ackedAt  time.Time
	nack     *refusal
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
	// asked: the node asked for the name, so it is answered even if it is absent.
	asked bool
	// changed: the resource changed while it was subscribed to.
	changed bool
	// unsure: the node may hold something else than held: it was sent other
	// forms since, and which of them it took is not known.
	unsure bool
	// overtaken: one of these forms was followed by yet another before it was acknowledged, so
	// that the node may have gone from held to what was out of date already.
	overtaken bool
	// told: the client has something from before this stream, or kept what it may
	// have thrown away, of which nothing but its own word (held) is known, or not
	// even that ("").
	told bool
	// held is what the node has; "" for nothing.
	held mesh.Version
	// want is what was sent or refused; "" for a removal.
	want mesh.Version
	// nonce is the response that carried want.
	nonce uint64
	// since is when held went out of date; late is from then to the last time that the node
	// held, or could have held, what was current.
	since time.Time
	late  time.Duration
	// newer counts the versions since held; sentNewer is what it was when want was sent.
	newer, sentNewer int32
}

// behindSince is when the node began to be behind. Where a change was taken back, it held
// what was current until then, whether it had taken the change or not: only the latest word is missing.
func (e exception) behindSince() time.Time { return e.since.Add(e.late) }

// holds tells whether a version is the one that the node acknowledged last. Where it is
// not known to hold even nothing, absence is none.
func (t *Tracker) holds(e exception, version mesh.Version) bool {
	return e.held == version && version != mesh.VersionUnknown && (version != "" || !t.unproven)
}

// versions gives how many versions the node is behind; 0 where it holds none.
func (e exception) versions() int {
	if e.held == "" {
		return 0
	}
	return int(e.newer)
}

// holding gives what the node is known to hold, where now is the current version.
func (e exception) holding(now mesh.Version) mesh.Version {
	if e.unsure && e.held == now {
		return mesh.VersionUnknown
	}
	return e.held
}

// Wildcard tells whether the stream subscribes to every resource of the type.
func (t *Tracker) Wildcard() bool { return t.wildcard }

// Names are the names that were asked for, sorted; not to be changed, and valid
// until the next Add or Remove.
func (t *Tracker) Names() []mesh.Name { return t.names }

// Named tells whether the name was asked for by name.
func (t *Tracker) Named(name mesh.Name) bool { return t.names.has(name) }

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

// Add adds names to those asked for, and gives those that were not there already.
func (t *Tracker) Add(more ...mesh.Name) (added []mesh.Name) {
	seen := make(map[mesh.Name]struct{}, len(more))
	for _, name := range more {
		if _, again := seen[name]; !again && !t.names.has(name) {
			added = append(added, name)
		}
		seen[name] = struct{}{}
	}
	t.names = t.names.with(added)
	return added
}

// Remove takes names back, and gives those that were there.
func (t *Tracker) Remove(gone ...mesh.Name) (removed []mesh.Name) {
	drop := make(map[mesh.Name]struct{}, len(gone))
	for _, name := range gone {
		if _, again := drop[name]; !again && t.names.has(name) {
			drop[name] = struct{}{}
			removed = append(removed, name)
		}
	}
	if len(removed) > 0 {
		t.names = t.names.without(drop)
	}
	return removed
}

// Ask makes a name due because the node asks for it, whatever it holds. held
// is what the node is known to hold from elsewhere (initial_resource_versions),
// "" where that is not known; used only if the name is no exception yet.
func (t *Tracker) Ask(name mesh.Name, held mesh.Version, at time.Time) {
	e, known := t.exceptions[name]
	if !known {
		e = exception{held: held, since: at, unsure: held == "", told: true}
	}
	e.asked = true
	t.setDue(name, e, known)
}

// AwaitsChange tells whether the node lacks a change of the resource that came
// while it subscribed to it. An ACK ends that, so a change is told of once: what
// is sent again, or asked for, is none.
func (t *Tracker) AwaitsChange(name mesh.Name) bool { return t.exceptions[name].changed }

// Lose makes a name due because the node may have thrown it away, whatever it
// was known to hold; now is the current version.
func (t *Tracker) Lose(name mesh.Name, now mesh.Version, at time.Time) {
	e, known := t.exceptions[name]
	if !known || e.holding(now) == now {
		e.since, e.late = at, 0
	}
	e.held, e.unsure, e.told, e.asked = "", true, true, true
	t.setDue(name, e, known)
}

// Hurry lets the due names go out although a response is in flight, which then
// counts as lost and its nonce as old. heard tells that the node itself has
// asked: only then does the time it has for an answer begin anew.
func (t *Tracker) Hurry(heard bool) {
	t.urgent = t.due > 0
	if heard {
		t.waitingSince = time.Time{}
	}
}

// Change is what became of a resource: the version before, "" for none, the one
// that is current now, and when the one before went out of date.
type Change struct {
	Was, Now mesh.Version
	At       time.Time
}

// Changed makes a name due because the resource is no longer as the node holds it.
func (t *Tracker) Changed(name mesh.Name, c Change) {
	e, known := t.exceptions[name]
	if !known {
		e = exception{held: c.Was, since: c.At}
	}
	if known && e.phase == refused {
		t.retryOthers(name, e.nonce)
	}
	if known && !e.unsure && t.holds(e, c.Was) {
		// It was not behind until now, whatever came and went unsent.
		e.since, e.late, e.newer, e.sentNewer = c.At, 0, 0, 0
	}
	switch {
	case !t.holds(e, c.Now):
		e.overtaken = e.overtaken || e.unsure
	case !e.overtaken:
		e.late = max(c.At.Sub(e.since), 0)
	}
	e.changed = true
	e.newer++
	t.setDue(name, e, known)
}

// Passed says that further versions of a name came and went before the change that
// Changed was told of.
func (t *Tracker) Passed(name mesh.Name, versions int) {
	if e, ok := t.exceptions[name]; ok && versions > 0 {
		e.newer += int32(min(versions, math.MaxInt16))
		t.exceptions[name] = e
	}
}

// Drop forgets that a name is an exception: it is no longer subscribed to, or
// there is nothing that could be sent for it.
func (t *Tracker) Drop(name mesh.Name) {
	e, ok := t.exceptions[name]
	if !ok {
		return
	}
	if f := t.flight; f != nil {
		if _, overtaken := f.overtook[name]; overtaken || e.nonce == f.nonce {
			f.drops(name)
		}
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
	if t.due == 0 {
		t.urgent = false
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

// Due gives the names to send next, in no order; what a response in flight
// carries is among them, since the next one overtakes it. Names that only get
// another try after a refusal come alone: after the next ACK, or when no others are due.
func (t *Tracker) Due() []mesh.Name {
	out := make([]mesh.Name, 0, t.due)
	for _, retry := range []bool{t.retryTurn, !t.retryTurn} {
		for name, e := range t.exceptions {
			if (e.phase == due || e.phase == sent) && e.retry == retry {
				out = append(out, name)
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// Lacking gives every name that is not known to be held in its current form, in no order.
func (t *Tracker) Lacking() []mesh.Name { return slices.Collect(maps.Keys(t.exceptions)) }

// Distrust says that the node does not tell what it holds from before this
// stream: until its first ACK it is not known to hold anything, not even nothing.
func (t *Tracker) Distrust() { t.unproven = true }

// Lacks tells whether a name is not known to be held in its current form.
func (t *Tracker) Lacks(name mesh.Name) bool {
	_, ok := t.exceptions[name]
	return ok
}

// Since is when what the node holds of a name that it lacks went out of date.
func (t *Tracker) Since(name mesh.Name) time.Time { return t.exceptions[name].since }

// Refused tells whether the last answer was a refusal of what is still current.
func (t *Tracker) Refused() bool {
	if t.refusedHeld {
		return true
	}
	for _, e := range t.exceptions {
		if e.phase == refused {
			return true
		}
	}
	return false
}

// Expects tells whether the node must hear of a due name's absence: it has, or
// may have, some form of it, or it asked for the name.
func (t *Tracker) Expects(name mesh.Name) bool {
	e, ok := t.exceptions[name]
	return !ok || e.held != "" || e.nonce != 0 || e.asked
}

// DropUnnamed forgets the exceptions that only the wildcard covered.
func (t *Tracker) DropUnnamed() {
	for name, e := range t.exceptions {
		if !t.Named(name) {
			t.clear(name, e)
		}
	}
}
