package oracle

import (
	"fmt"
	"slices"
	"time"
)

// Reset says that the server has ended the stream, and gives what is wrong with that.
func (n *Node) Reset(at time.Time) []string {
	s := n.stream
	n.stream = nil
	n.mayBeReset++
	if !s.deafSince.IsZero() || !s.heard {
		return nil
	}
	for _, r := range s.types {
		if since, waits := r.waitingSince(); waits && at.Sub(since) >= n.policy.AckTimeout {
			return nil
		}
	}
	return []string{"the server has ended the stream, and nothing waits for an answer"}
}

// Overdue gives what the server waits for, though it should have ended the stream.
func (n *Node) Overdue(at time.Time) []string {
	if n.stream == nil || !n.stream.heard {
		return nil
	}
	limit := n.policy.AckTimeout
	if n.mayBeReset > 1 {
		limit *= maxPatience
	}
	for _, typ := range []string{EDS, RDS} {
		if r := n.stream.types[typ]; r != nil && r.waiting() != nil && at.Sub(r.last().at) > limit+limit/4+time.Second {
			return []string{fmt.Sprintf("%s: no answer for %v, and the stream is still open", typ, at.Sub(r.last().at))}
		}
	}
	return nil
}

// maxPatience is by how much the server may extend the ack timeout of a node that it resets again and again.
const maxPatience = 8

// AtRest compares a node that was healthy for long enough: it has a stream, unless it wants nothing, and
// all that it wants, but for what it refused before.
func (n *Node) AtRest(seen Seen, refusals bool) []string {
	if n.stream == nil {
		for _, want := range n.wants {
			if !want.Empty() {
				return []string{"has no stream at rest"}
			}
		}
		return nil
	}
	var wrong []string
	for _, t := range seen.Types {
		r := n.stream.types[t.Type]
		if t.State != Fresh && !(refusals && t.State == Rejected) {
			wrong = append(wrong, fmt.Sprintf("%s counts as %s at rest", t.Type, t.State))
		}
		refused := n.refused(t.Type, r)
		for _, name := range n.lacking(t.Type, r) {
			if !refusals || !slices.Contains(refused, name) {
				wrong = append(wrong, fmt.Sprintf("%s %s at rest: the client holds %q, current is %q", t.Type, name, n.held[t.Type][name], n.current(t.Type, name)))
			}
		}
		if t.Behind > 0 && !refusals {
			wrong = append(wrong, fmt.Sprintf("%s is behind by %d at rest", t.Type, t.Behind))
		}
	}
	return wrong
}
