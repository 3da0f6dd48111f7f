package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// act is something that a peer does wrong, or that a judge must know of it.
type act string

const (
	// States of an endpoint, which concern connections.

	// refusing: nothing listens, and what was established is gone.
	refusing act = "refusing"
	// silent: connections are taken, and nothing ever comes on them.
	silent act = "silent"
	// garbled: what comes on a new connection is no protocol.
	garbled act = "garbled"
	// leaving: each new connection is closed at once.
	leaving act = "leaving"
	// halfClosed: the writing side of each new connection is closed at once.
	halfClosed act = "half closed"
	// oneStream: HTTP/2 connections allow one stream.
	oneStream act = "one stream"
	// killed: at this moment all connections were reset.
	killed act = "killed"
	// goneAway: at this moment a GOAWAY ended a connection for later streams.
	goneAway act = "gone away"
	// spoilt: at this moment a stream was reset in a way that makes clients give its connection up.
	spoilt act = "spoilt"
	// stalled: the machine had no time for this process.
	stalled act = "stalled"
	// timedOut: the log says that a dial timed out; what explains that is judged where it is said.
	timedOut act = "timed out"
	// open: a connection is open.
	open act = "open"

	// Deeds to one request.

	// began: the answer's headers were sent.
	began act = "began"
	// held: it got no answer while the fault lasted; delayed: it got it late.
	held, delayed act = "held", "delayed"
	// dropped: broken before the headers; cut: in the body.
	dropped, cut act = "dropped", "cut"
	// failed: answered by an error of the peer's own.
	failed act = "failed"
	// nonsense: answered by what is not the protocol.
	nonsense act = "nonsense"
	// switched: answered by a change of protocols that nobody asked for.
	switched act = "switched"
	// refused: the stream was refused.
	refused act = "refused"
	// left: the client went away.
	left act = "left"
)

// span is a time for which something was so; a zero to is "still".
type span struct{ from, to time.Time }

// near tells whether s touches a time between from and to.
func (s span) near(from, to time.Time) bool {
	return !s.from.After(to) && (s.to.IsZero() || !s.to.Before(from))
}

// deed is an act to one request.
type deed struct {
	endpoint, request string
	act               act
}

// ledger has what happened.
type ledger struct {
	mu sync.Mutex // guards all below
	// deeds: request → what was done to it.
	deeds map[string][]deed
	// states: endpoint → act → when.
	states map[string]map[act][]*span
}

func newLedger() *ledger {
	return &ledger{deeds: map[string][]deed{}, states: map[string]map[act][]*span{}}
}

// did notes a deed to a request. It is called before the deed.
func (l *ledger) did(endpoint, request string, a act) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deeds[request] = append(l.deeds[request], deed{endpoint, request, a})
}

// begin notes a state that begins now, and gives what ends it.
func (l *ledger) begin(endpoint string, a act) (end func()) {
	s := &span{from: time.Now()}
	l.add(endpoint, a, s)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.to = time.Now()
	}
}

func (l *ledger) add(endpoint string, a act, s *span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.states[endpoint] == nil {
		l.states[endpoint] = map[act][]*span{}
	}
	l.states[endpoint][a] = append(l.states[endpoint][a], s)
}

// done tells whether one of the acts was done to a request by an endpoint; "" is any.
func (l *ledger) done(endpoint, request string, acts ...act) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.deeds[request], func(d deed) bool {
		return (endpoint == "" || d.endpoint == endpoint) && slices.Contains(acts, d.act)
	})
}

// was tells whether an endpoint was in one of the states at a time between from and to.
func (l *ledger) was(endpoint string, from, to time.Time, acts ...act) bool {
	return slices.ContainsFunc(acts, func(a act) bool { return l.count(endpoint, from, to, a) > 0 })
}

// count is how many spans of a state touch the time between from and to.
func (l *ledger) count(endpoint string, from, to time.Time, a act) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.states[endpoint][a] {
		if s.near(from, to) {
			n++
		}
	}
	return n
}

// sum is how long an endpoint was in a state between from and to.
func (l *ledger) sum(endpoint string, from, to time.Time, a act) (d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.states[endpoint][a] {
		if !s.near(from, to) {
			continue
		}
		begin, end := s.from, s.to
		if begin.Before(from) {
			begin = from
		}
		if end.IsZero() || end.After(to) {
			end = to
		}
		d += end.Sub(begin)
	}
	return d
}

// around tells of the states of endpoints about a time, for a person.
func (l *ledger) around(from, to time.Time, endpoints ...string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	const clock = "15:04:05.000"
	var b strings.Builder
	for _, e := range endpoints {
		for a, spans := range l.states[e] {
			for _, s := range spans {
				if a != open && s.near(from, to) {
					fmt.Fprintf(&b, "\n    %s %s from %s to %s", e, a, s.from.Format(clock), s.to.Format(clock))
				}
			}
		}
	}
	return b.String()
}

// forget drops what was over before a time, and all deeds.
func (l *ledger) forget(before time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deeds = map[string][]deed{}
	for _, states := range l.states {
		for a, spans := range states {
			// A copy, so that the old array goes.
			states[a] = slices.Clone(slices.DeleteFunc(spans, func(s *span) bool { return !s.to.IsZero() && s.to.Before(before) }))
		}
	}
}
