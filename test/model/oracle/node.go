package oracle

import (
	"maps"
	"slices"
	"time"
)

// Node is one client.
type Node struct {
	ID, Zone string
	Delta    bool

	world  *World
	policy Policy
	// held is what the client truly holds: type → name → content.
	held map[string]map[string]string
	// wants is what the client wants: type → its subscription.
	wants map[string]Subscription
	// stream is the open one; nil while there is none.
	stream *stream
	// mayBeReset counts the streams that the server has ended, or may have.
	mayBeReset int
}

// Subscription is what is asked for of one type.
type Subscription struct {
	Wildcard bool
	// Names: name → true.
	Names map[string]bool
}

func (s Subscription) covers(name string) bool { return s.Wildcard || s.Names[name] }

// Empty tells that nothing is asked for.
func (s Subscription) Empty() bool { return !s.Wildcard && len(s.Names) == 0 }

// List gives the names, sorted, "*" for the wildcard last.
func (s Subscription) List() []string {
	out := slices.Sorted(maps.Keys(s.Names))
	if s.Wildcard {
		out = append(out, "*")
	}
	return out
}

func (s Subscription) clone() Subscription {
	names := maps.Clone(s.Names)
	if names == nil {
		names = map[string]bool{}
	}
	return Subscription{Wildcard: s.Wildcard, Names: names}
}

// NewNode gives a client that holds and wants nothing.
func NewNode(w *World, p Policy, id, zone string, delta bool) *Node {
	n := &Node{ID: id, Zone: zone, Delta: delta, world: w, policy: p, wants: map[string]Subscription{}}
	for _, t := range Types {
		n.wants[t] = Subscription{Names: map[string]bool{}}
	}
	n.Forget()
	return n
}

// Forget is a restart of the client: what it holds is gone.
func (n *Node) Forget() {
	n.held = map[string]map[string]string{}
	for _, t := range Types {
		n.held[t] = map[string]string{}
	}
}

// Held gives what the client holds of a type: name → content. Not to be changed.
func (n *Node) Held(typ string) map[string]string { return n.held[typ] }

// Wants gives what the client wants of a type.
func (n *Node) Wants(typ string) Subscription { return n.wants[typ].clone() }

// stream is one stream of a node.
type stream struct {
	openedAt time.Time
	// answeredAt is when a valid answer was last given, acked that of each type's last ACK.
	answeredAt time.Time
	acked      map[string]time.Time
	// askedAt is when something was last asked for, where before nothing was and nothing waited for an answer.
	askedAt  time.Time
	probedAt time.Time
	types    map[string]*record
	// order counts the responses of all types.
	order int
	// deafSince is when the client ceased to hear; zero while it hears. heard: it
	// was never deaf, so that what was sent is known here.
	deafSince  time.Time
	deafMoment int
	heard      bool
}

// quietSince is from when on the node owes a sign of life.
func (s *stream) quietSince() time.Time { return later(later(s.openedAt, s.answeredAt), s.askedAt) }

// asks notes that the server knows of another subscription now.
func (s *stream) asks(r *record, known Subscription, at time.Time) {
	idle := true
	for _, other := range s.types {
		idle = idle && other.known.Empty() && other.waiting() == nil
	}
	if idle && !known.Empty() {
		s.askedAt = at
	}
	r.known = known
}

// record is all that happened to one type on a stream.
type record struct {
	// known is what the server knows of the subscription.
	known     Subscription
	responses []*Response
	// asked: name → how many responses there were when it was last asked for.
	asked map[string]int
	// again: name → as asked, of names that were subscribed to already (delta).
	again map[string]int
	// moment is that of the first request.
	moment int
	// offered is initial_resource_versions, as contents.
	offered map[string]string
	// since: name → when the client began to lack it; only those that it lacks at the last look.
	since map[string]time.Time
	// cleanAt is when nothing was lacking or unanswered last.
	cleanAt time.Time
}

// Answer is what a client said of a response.
type Answer int

// The answers. Void is one that the server must not count.
const (
	None Answer = iota
	Acked
	Nacked
	Void
)

// Response is a response as the client received it.
type Response struct {
	Type, Nonce string
	// Resources: name → content. Removed are names that are told not to exist.
	Resources map[string]string
	Removed   []string

	// at is when it was received; earliest when it can have been sent.
	at, earliest  time.Time
	moment, order int
	answer        Answer
}

// Open says that the client has opened a stream.
func (n *Node) Open(at time.Time) {
	n.stream = &stream{openedAt: at, types: map[string]*record{}, acked: map[string]time.Time{}, heard: true}
}

// IsOpen tells whether it has one, as far as it knows.
func (n *Node) IsOpen() bool { return n.stream != nil }

// Deaf says that the client hears nothing from now on, or does again.
func (n *Node) Deaf(deaf bool, at time.Time) {
	switch {
	case n.stream == nil:
	case deaf:
		n.stream.deafSince, n.stream.deafMoment, n.stream.heard = at, n.world.Now(), false
	default:
		n.stream.deafSince = time.Time{}
	}
}

// Heard says that all that was sent while the client was deaf has been received.
func (n *Node) Heard() {
	if n.stream != nil && n.stream.deafSince.IsZero() {
		n.stream.heard = true
	}
}

// Closed says that the stream has ended, by the client or the network. The
// server may have ended it before, unheard.
func (n *Node) Closed() {
	if n.stream != nil && !n.stream.heard {
		n.mayBeReset++
	}
	n.stream = nil
}

// record gives the record of a type, made if need be; first tells that it was.
func (n *Node) record(typ string, at time.Time) (r *record, first bool) {
	s := n.stream
	if s.types[typ] == nil {
		s.types[typ] = &record{
			moment: n.world.Now(),
			known:  Subscription{Names: map[string]bool{}}, asked: map[string]int{}, again: map[string]int{},
			since: map[string]time.Time{}, cleanAt: at,
		}
		return s.types[typ], true
	}
	return s.types[typ], false
}

// last is the newest response; nil before the first.
func (r *record) last() *Response {
	if len(r.responses) == 0 {
		return nil
	}
	return r.responses[len(r.responses)-1]
}

// waiting is the newest response when it has no answer; nil otherwise.
func (r *record) waiting() *Response {
	if l := r.last(); l != nil && l.answer == None {
		return l
	}
	return nil
}

// lastAnswer is the last valid answer; None before the first.
func (r *record) lastAnswer() Answer {
	for _, x := range slices.Backward(r.responses) {
		if x.answer == Acked || x.answer == Nacked {
			return x.answer
		}
	}
	return None
}

// waitingSince is when at the earliest the first response was sent since the last valid
// answer; false when none waits.
func (r *record) waitingSince() (time.Time, bool) {
	if r.waiting() == nil {
		return time.Time{}, false
	}
	at := r.last().earliest
	for _, x := range slices.Backward(r.responses) {
		if x.answer == Acked || x.answer == Nacked {
			break
		}
		at = x.earliest
	}
	return at, true
}

// about gives the newest of the first so many responses that says something of
// a name, and what it says; nil when none does.
func (n *Node) about(typ string, r *record, name string, among int) (*Response, string) {
	for _, x := range slices.Backward(r.responses[:among]) {
		if content, ok := x.Resources[name]; ok {
			return x, content
		}
		if n.whole(typ) || slices.Contains(x.Removed, name) {
			return x, ""
		}
	}
	return nil, ""
}

// whole tells whether each response of a type holds all of it: SotW LDS and CDS.
func (n *Node) whole(typ string) bool { return !n.Delta && (typ == CDS || typ == LDS) }
