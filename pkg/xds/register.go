package xds

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/grpc/codes"
)

const (
	// keepDisconnected is how long a node without a stream stays in the audit.
	keepDisconnected = 10 * time.Minute
	// maxDisconnected bounds how many such nodes are kept; the oldest go first.
	maxDisconnected = 10_000
	// maxPatience bounds the factor by which the ack timeout grows for a node that is reset again and again.
	maxPatience = 8
)

// register knows every node that has a stream, or had one lately.
type register struct {
	mu   sync.Mutex // guards byID
	byID map[mesh.NodeID]*record
}

// record is one node. All of it is guarded by register.mu.
type record struct {
	sessions []*session
	// opened counts the streams that there ever were.
	opened  int
	resets  int
	resetAt time.Time
	// streak counts the resets of which none came later than keepDisconnected after the one before.
	streak int
	// last is what the last stream left behind; valid while there are no sessions.
	last ack.Node
	// past is the history of streams that have ended.
	past []ack.Event
	// sent are the deliveries of streams that have ended; nil for none.
	sent *ack.Deliveries
	// lost are streams whose place none has taken, oldest first.
	lost []*lost
}

func newRegister() *register { return &register{byID: make(map[mesh.NodeID]*record)} }

// add takes a stream in. Any number up to limit may have the same node id: a
// gRPC client opens one for each channel, and a client that comes back may do
// so before its old stream is seen to end.
func (r *register) add(sn *session, limit int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.byID[sn.node.ID]
	if rec == nil {
		rec = &record{}
		r.byID[sn.node.ID] = rec
	}
	if len(rec.sessions) >= limit {
		return refusal(RefusedStreams, codes.ResourceExhausted,
			"node.id: %q has %d streams open, as many as it may (--max-node-streams)", sn.node.ID, limit)
	}
	rec.sessions = append(rec.sessions, sn)
	rec.opened++
	rec.found(sn)
	return nil
}

// confirmed gives when the node last answered on a stream of another type than
// sn's; zero for never. sn is bound to one type.
func (r *register) confirmed(sn *session) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	var last int64
	if rec := r.byID[sn.node.ID]; rec != nil {
		for _, other := range rec.sessions {
			if other.only != "" && other.only != sn.only {
				last = max(last, other.confirmed.Load())
			}
		}
	}
	if last == 0 {
		return time.Time{}
	}
	return time.Unix(0, last)
}

// returns gives how many streams a node has opened so far; 0 where it is not known.
func (r *register) returns(id mesh.NodeID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.byID[id]; rec != nil {
		return rec.opened
	}
	return 0
}

// note adds to the history of a node without a stream; nothing where it is not known.
func (r *register) note(id mesh.NodeID, at time.Time, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.byID[id]; rec != nil {
		rec.past = newest(append(rec.past, ack.Event{At: at, Event: "disconnected", Reason: reason}))
	}
}

// remove is called by the session's owner with its last report. gone is nil for
// a stream that its client is not waiting for.
func (r *register) remove(sn *session, last ack.Node, reset bool, gone *lost) {
	now := time.Now()
	last.State, last.Reason, last.Streams, last.DisconnectedAt = ack.Disconnected, "no stream since "+now.Format(time.TimeOnly), 0, &now
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.byID[sn.node.ID]
	rec.sessions = slices.DeleteFunc(rec.sessions, func(s *session) bool { return s == sn })
	rec.past = newest(append(rec.past, last.History...))
	rec.keep(&sn.deliveries)
	rec.lose(gone)
	last.History = nil
	rec.last = last
	if reset {
		if now.Sub(rec.resetAt) > keepDisconnected {
			rec.streak = 0
		}
		rec.resets++
		rec.streak++
		rec.resetAt = now
	}
	r.expire(now)
}

// newest gives the newest events, oldest first.
func newest(events []ack.Event) []ack.Event {
	slices.SortStableFunc(events, func(a, b ack.Event) int { return a.At.Compare(b.At) })
	return slices.Clone(events[max(0, len(events)-ack.HistoryLimit):])
}

// expire forgets nodes that were disconnected for too long, or are too many.
func (r *register) expire(now time.Time) {
	gone := 0
	for id, rec := range r.byID {
		if len(rec.sessions) > 0 {
			continue
		}
		if gone++; now.Sub(*rec.last.DisconnectedAt) > keepDisconnected {
			delete(r.byID, id)
			gone--
		}
	}
	for ; gone > maxDisconnected; gone-- {
		var oldest mesh.NodeID
		for id, rec := range r.byID {
			if len(rec.sessions) == 0 && (oldest == "" || rec.last.DisconnectedAt.Before(*r.byID[oldest].last.DisconnectedAt)) {
				oldest = id
			}
		}
		delete(r.byID, oldest)
	}
}

// policy gives a node that was reset again and again more time before the next
// reset: twice as much after the second in a row, and after each one that follows.
func (r *register) policy(id mesh.NodeID, p ack.Policy) ack.Policy {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.byID[id]
	if rec == nil || rec.streak == 0 || time.Since(rec.resetAt) > keepDisconnected {
		return p
	}
	p.Extended = p.AckTimeout * time.Duration(min(1<<min(rec.streak-1, 8), maxPatience))
	return p
}

// sessions gives the open streams of one node, or of all for the id "".
func (r *register) sessions(id mesh.NodeID) []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id != "" {
		if rec := r.byID[id]; rec != nil {
			return slices.Clone(rec.sessions)
		}
		return nil
	}
	var all []*session
	for _, rec := range r.byID {
		all = append(all, rec.sessions...)
	}
	return all
}

// each runs f in the owner of every matching stream, one at a time, and waits
// for all of them, until ctx ends. f is never called after each has returned.
func (r *register) each(ctx context.Context, id mesh.NodeID, f func(*session)) error {
	var mu sync.Mutex // guards over, and what f collects
	over := false
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
	}()
	answered := make(map[*session]chan struct{})
	for _, sn := range r.sessions(id) {
		answer := make(chan struct{})
		ask := func(sn *session) {
			defer close(answer)
			mu.Lock()
			defer mu.Unlock()
			if !over {
				f(sn)
			}
		}
		select {
		case sn.queries <- ask:
			answered[sn] = answer
		case <-sn.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for sn, answer := range answered {
		select {
		case <-answer:
		case <-sn.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// withoutPast takes the history out of the reports of streams that ended since they were
// asked: the record has it. Guarded by register.mu.
func (rec *record) withoutPast(reports []ack.Node, places map[*session]int) {
	open := make(map[int]bool)
	for _, sn := range rec.sessions {
		if i, ok := places[sn]; ok {
			open[i] = true
		}
	}
	for i := range reports {
		if !open[i] {
			reports[i].History = nil
		}
	}
}

// nodes gives the audit's nodes, sorted by id.
func (r *register) nodes(ctx context.Context, id mesh.NodeID) ([]ack.Node, error) {
	asked, parts := time.Now(), make(map[mesh.NodeID][]ack.Node)
	reported := make(map[*session]int) // its place in parts
	err := r.each(ctx, id, func(sn *session) {
		reported[sn] = len(parts[sn.node.ID])
		parts[sn.node.ID] = append(parts[sn.node.ID], sn.report(time.Now()))
	})
	out := make([]ack.Node, 0, len(parts))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(time.Now())
	for nodeID, rec := range r.byID {
		if id != "" && id != nodeID {
			continue
		}
		var n ack.Node
		switch p := parts[nodeID]; {
		case len(p) > 0:
			rec.withoutPast(p, reported)
			slices.SortFunc(p, func(a, b ack.Node) int { return a.ConnectedAt.Compare(b.ConnectedAt) })
			n = ack.Merge(p)
			rec.missing(&n, asked)
		case rec.last.DisconnectedAt == nil || err != nil && len(rec.sessions) > 0:
			continue // it came later, or its owner did not answer in time
		default: // where it has a stream, that was opened since
			n = rec.last
		}
		n.Resets = rec.resets
		n.History = newest(append(slices.Clone(rec.past), n.History...))
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b ack.Node) int { return cmp.Compare(a.ID, b.ID) })
	return out, err
}
