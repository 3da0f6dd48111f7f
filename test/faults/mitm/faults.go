package mitm

import (
	"slices"
	"sync"
	"time"
)

// faults is what is in force. It is immutable once stored.
type faults struct {
	stalls    []*streamRule
	others    []*streamRule
	messages  []*messageRule
	observers []*func(Message)
	// hold counts the HoldWindowUpdates in force by the direction in which the frames travel.
	hold                     [2]int
	refuse, freeze, halfOpen int
}

// streamRule holds back frames of streams.
type streamRule struct {
	match func(Stream) bool
	delay time.Duration // of DelayOthers
}

// messageRule does something to messages.
type messageRule struct {
	action action
	match  func(Message) bool
	delay  time.Duration
}

type action int

const (
	swallow action = iota
	delay
	duplicate
)

func (f *faults) clone() *faults {
	next := *f
	next.stalls = slices.Clone(f.stalls)
	next.others = slices.Clone(f.others)
	next.messages = slices.Clone(f.messages)
	next.observers = slices.Clone(f.observers)
	return &next
}

// find gives the first rule of this kind that matches, or nil.
func (f *faults) find(kind action, m Message) *messageRule {
	for _, r := range f.messages {
		if r.action == kind && (r.match == nil || r.match(m)) {
			return r
		}
	}
	return nil
}

func (f *faults) stalled(s Stream) bool {
	return slices.ContainsFunc(f.stalls, func(r *streamRule) bool { return r.match == nil || r.match(s) })
}

// late gives the rule that delays the frames of this stream the longest, or nil.
func (f *faults) late(s Stream) *streamRule {
	var longest *streamRule
	for _, r := range f.others {
		if r.match != nil && r.match(s) {
			continue
		}
		if longest == nil || r.delay > longest.delay {
			longest = r
		}
	}
	return longest
}

// put brings a rule into force and gives what takes it out again, and then lets
// through on every connection what the rule had withheld.
func put[R any](p *Proxy, list func(*faults) *[]*R, rule *R) (undo func()) {
	p.change(func(f *faults) { l := list(f); *l = append(*l, rule) })
	return once(func() {
		p.change(func(f *faults) {
			l := list(f)
			*l = slices.DeleteFunc(*l, func(r *R) bool { return r == rule })
		})
		p.command(func(q *pair) { q.release(rule) })
	})
}

func count(p *Proxy, counter func(*faults) *int) (undo func()) {
	p.change(func(f *faults) { *counter(f)++ })
	return once(func() { p.change(func(f *faults) { *counter(f)-- }) })
}

func once(f func()) func() {
	var o sync.Once
	return func() { o.Do(f) }
}

func stallRules(f *faults) *[]*streamRule    { return &f.stalls }
func otherRules(f *faults) *[]*streamRule    { return &f.others }
func messageRules(f *faults) *[]*messageRule { return &f.messages }

// StallStreams withholds the DATA and the trailers of the matching streams in
// both directions. Everything else passes: PING, SETTINGS, other streams, the
// HEADERS that begin a stream or its answer, window updates. RST_STREAM passes
// too, and what is withheld of its stream is then lost; only a RST_STREAM
// with NO_ERROR (which gRPC servers send after the trailers) waits behind
// withheld trailers. match is asked again for each frame, so it may depend on
// the NodeID. A nil match means all streams. The withheld bytes are at most the
// receiver's stream windows. Undo delivers them in order.
func (p *Proxy) StallStreams(match func(Stream) bool) (undo func()) {
	return put(p, stallRules, &streamRule{match: match})
}

// DelayOthers delivers the frames of all streams that do not match late by d,
// each stream in its order, in both directions: DATA, HEADERS (but for those that open
// a stream), RST_STREAM, and window updates of the stream. Frames of the
// connection pass. Undo delivers the withheld frames at once.
func (p *Proxy) DelayOthers(match func(Stream) bool, d time.Duration) (undo func()) {
	return put(p, otherRules, &streamRule{match: match, delay: d})
}

// HoldWindowUpdates withholds the WINDOW_UPDATE frames that travel in direction
// d, those of streams and of the connection: what the other direction may carry
// runs out. Windows in SETTINGS, and what the proxy itself gives back for
// swallowed messages, pass. Undo delivers them in order.
func (p *Proxy) HoldWindowUpdates(d Direction) (undo func()) {
	return count(p, func(f *faults) *int { return &f.hold[d] })
}

// Swallow loses the matching messages for good. Their sender gets its window
// back, and the messages after them pass. A nil match means all. Undo brings
// nothing back.
func (p *Proxy) Swallow(match func(Message) bool) (undo func()) {
	return put(p, messageRules, &messageRule{action: swallow, match: match})
}

// Delay delivers the matching messages late by d; messages of the stream after
// them overtake them. The end of the stream does not wait for them: then they
// are lost and count as Stats.Lost. Undo delivers what is withheld at once.
func (p *Proxy) Delay(match func(Message) bool, d time.Duration) (undo func()) {
	return put(p, messageRules, &messageRule{action: delay, match: match, delay: d})
}

// Duplicate delivers the matching messages twice, the second time right after
// the first. With Delay both are late.
func (p *Proxy) Duplicate(match func(Message) bool) (undo func()) {
	return put(p, messageRules, &messageRule{action: duplicate, match: match})
}

// Observe calls f for every message that has arrived at the proxy whole, in the
// order of arrival within a connection, before any fault acts on it (so also for
// those that are swallowed). f may keep the message but not change its Body.
func (p *Proxy) Observe(f func(Message)) (undo func()) {
	return put(p, func(f *faults) *[]*func(Message) { return &f.observers }, &f)
}

// HalfOpen makes the bytes of both directions vanish: nothing is delivered, no
// FIN and no RST either, and what a side sends is read and lost. If a side gives
// up its connection, the other side does not learn of it. New connections
// are accepted and silent too. After undo new connections work; those of before
// stay dead until their ends, Cut or Close close them, as bytes were lost.
func (p *Proxy) HalfOpen() (undo func()) {
	undo = count(p, func(f *faults) *int { return &f.halfOpen })
	p.command((*pair).kill)
	return undo
}

// Freeze stops reading and writing on all connections, old and new: a partition shorter
// than TCP's patience. Nothing is lost: undo delivers all in order, a close of
// either side included. Delays run on and are caught up.
func (p *Proxy) Freeze() (undo func()) {
	return count(p, func(f *faults) *int { return &f.freeze })
}

// Refuse resets new connections right after they are accepted.
func (p *Proxy) Refuse() (undo func()) {
	return count(p, func(f *faults) *int { return &f.refuse })
}

// Cut closes every connection on both sides before it returns, with RST or, after what
// was already written, with FIN. Frames that are withheld are lost. Connections that
// are being opened meanwhile may escape it.
func (p *Proxy) Cut(reset bool) {
	p.closeSilent()
	p.command(func(q *pair) { q.abort(reset) })
}
