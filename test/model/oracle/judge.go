package oracle

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Seen is what the audit shows of a node.
type Seen struct {
	State string
	Types []SeenType
}

// SeenType is what it shows of one type.
type SeenType struct {
	Type, State string
	Behind      int
	// Names are those of the resources that are behind.
	Names []string
	// Equal tells that the held and the current version are the same.
	Equal bool
}

// The states of the audit.
const (
	Fresh        = "fresh"
	Pending      = "pending"
	Stale        = "stale"
	Rejected     = "rejected"
	Disconnected = "disconnected"
)

// Judge compares what the audit shows of the node with what is true, and gives the differences.
func (n *Node) Judge(seen Seen, at time.Time) []string {
	s := n.stream
	if s == nil {
		if seen.State != Disconnected {
			return []string{fmt.Sprintf("shown as %s, and has no stream", seen.State)}
		}
		return nil
	}
	deaf := !s.deafSince.IsZero()
	if seen.State == Disconnected {
		if deaf {
			return nil
		}
		return []string{"shown as disconnected, and has a stream"}
	}
	wrong := n.overall(seen)
	for _, t := range seen.Types {
		r := s.types[t.Type]
		if r == nil {
			wrong = append(wrong, t.Type+" is shown, and was never asked for")
			continue
		}
		if (t.Behind == 0) != t.Equal || t.Behind != len(t.Names) {
			wrong = append(wrong, fmt.Sprintf("%s: behind %d, by name %v, held and current equal: %v", t.Type, t.Behind, t.Names, t.Equal))
		}
		wrong = append(wrong, n.judgeType(t, r, at)...)
	}
	if !deaf && s.heard {
		wrong = append(wrong, n.probedInTime(at)...)
	}
	return wrong
}

// overall: the node's state is the worst of its types'.
func (n *Node) overall(seen Seen) []string {
	order := []string{Rejected, Stale, Pending, Fresh}
	worst := Fresh
	for _, t := range seen.Types {
		if slices.Index(order, t.State) < slices.Index(order, worst) {
			worst = t.State
		}
	}
	if seen.State != worst {
		return []string{fmt.Sprintf("shown as %s, and its types as %s at worst", seen.State, worst)}
	}
	return nil
}

func (n *Node) judgeType(t SeenType, r *record, at time.Time) []string {
	lacking, unsure := n.lacking(t.Type, r), n.unsure(t.Type, r)
	n.remember(t.Type, r, lacking, unsure, at)
	wrong := n.falseFresh(t, lacking)
	_, proven := n.stream.acked[t.Type]
	for _, name := range lacking {
		// What a SotW client has from before its stream, nobody can know before its first ACK.
		if (proven || !n.whole(t.Type)) && !slices.Contains(t.Names, name) {
			wrong = append(wrong, fmt.Sprintf("%s %s is not counted as behind: the client holds %q, current is %q",
				t.Type, name, n.held[t.Type][name], n.current(t.Type, name)))
		}
	}
	if !r.known.Empty() {
		wrong = append(wrong, n.tooLate(t, r, lacking, at)...)
	}
	if n.stream.heard {
		wrong = append(wrong, n.falseAlarm(t, r, lacking, unsure, at)...)
		wrong = append(wrong, n.undelivered(t, r, lacking)...)
		wrong = append(wrong, n.ignored(t.Type, r)...)
	}
	return wrong
}

// lacking gives the names of which the client does not hold the current form,
// of those that it wants, that the server knows it wants, and that it can be told of.
func (n *Node) lacking(typ string, r *record) []string {
	names := map[string]bool{}
	for _, all := range []map[string]bool{r.known.Names, n.wants[typ].Names} {
		maps.Copy(names, all)
	}
	for _, name := range n.world.Names() {
		names[name] = true
	}
	for name := range n.held[typ] {
		names[name] = true
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		current := n.current(typ, name)
		tellable := current != "" || n.Delta || n.whole(typ)
		if tellable && r.known.covers(name) && n.wants[typ].covers(name) && n.held[typ][name] != current {
			out = append(out, name)
		}
	}
	return out
}

// unsure gives the names whose newest word to the client was not acknowledged,
// or which were asked for since.
func (n *Node) unsure(typ string, r *record) map[string]bool {
	out := map[string]bool{}
	names := maps.Clone(r.known.Names)
	for name := range r.asked {
		names[name] = name != "*"
	}
	for _, name := range n.world.ever() {
		names[name] = names[name] || r.known.Wildcard // from before the stream it may hold anything
	}
	for _, x := range r.responses {
		for name := range x.Resources {
			names[name] = true
		}
		for _, name := range x.Removed {
			names[name] = true
		}
	}
	for name, is := range names {
		x, _ := n.about(typ, r, name, len(r.responses))
		switch {
		case !is:
		case x == nil:
			out[name] = r.askedSince(name, -1) || r.offered[name] != n.current(typ, name)
		case !n.Delta && !n.whole(typ) && n.world.moved(x.moment, typ, name, n.Zone):
			out[name] = true // it may have been gone meanwhile, which this client cannot be told
		case x.answer != Acked, r.askedSince(name, slices.Index(r.responses, x)):
			out[name] = true
		}
	}
	maps.DeleteFunc(out, func(_ string, is bool) bool { return !is })
	return out
}

// remember notes since when each name is lacking, and when the type was last clean.
func (n *Node) remember(typ string, r *record, lacking []string, unsure map[string]bool, at time.Time) {
	maps.DeleteFunc(r.since, func(name string, _ time.Time) bool { return !slices.Contains(lacking, name) })
	for _, name := range lacking {
		if _, known := r.since[name]; !known {
			r.since[name] = at
		}
	}
	_, proven := n.stream.acked[typ]
	doubtful := n.whole(typ) && !proven && r.waiting() != nil // it may hold what was deleted before it came
	if n.stream.heard && len(lacking) == 0 && len(unsure) == 0 && !doubtful {
		r.cleanAt = at
	}
}

// falseFresh: what counts as fresh, the client holds.
func (n *Node) falseFresh(t SeenType, lacking []string) []string {
	if t.State == Fresh && len(lacking) > 0 {
		return []string{fmt.Sprintf("FALSE FRESH: %s counts as fresh, and the client lacks %v", t.Type, lacking)}
	}
	return nil
}

// tooLate: what is wrong for too long is called stale (or rejected), and so is silence.
func (n *Node) tooLate(t SeenType, r *record, lacking []string, at time.Time) []string {
	if t.State == Stale || t.State == Rejected {
		return nil
	}
	s := n.stream
	if quiet := at.Sub(s.quietSince()); quiet > n.policy.silence() {
		return []string{fmt.Sprintf("%s counts as %s, and the client has not answered for %v", t.Type, t.State, quiet)}
	}
	withheld := (t.Type == CDS || t.Type == LDS) && at.Sub(s.besides(t.Type)) <= n.policy.silence()
	for _, name := range lacking {
		if d := at.Sub(r.since[name]); d > n.policy.AckTimeout && !withheld {
			return []string{fmt.Sprintf("%s counts as %s, and the client lacks %s for %v", t.Type, t.State, name, d)}
		}
	}
	return nil
}

// falseAlarm: nothing is called behind, late or refused that the client has and acknowledged.
func (n *Node) falseAlarm(t SeenType, r *record, lacking []string, unsure map[string]bool, at time.Time) []string {
	var wrong []string
	for _, name := range t.Names {
		if n.wants[t.Type].covers(name) && !slices.Contains(lacking, name) && !unsure[name] {
			wrong = append(wrong, fmt.Sprintf("%s %s counts as behind, and the client has acknowledged what is current", t.Type, name))
		}
	}
	clean := len(lacking) == 0 && len(unsure) == 0 && r.waiting() == nil
	quiet := at.Sub(n.stream.quietSince())
	refused := r.lastAnswer() == Nacked
	switch t.State {
	case Pending:
		if clean && len(r.responses) > 0 {
			wrong = append(wrong, t.Type+" counts as pending, and the client has answered everything")
		}
	case Stale:
		if at.Sub(r.cleanAt) <= n.policy.AckTimeout && quiet <= n.policy.silence() {
			wrong = append(wrong, fmt.Sprintf("%s counts as stale, and was in order %v ago", t.Type, at.Sub(r.cleanAt)))
		}
	case Rejected:
		if len(n.refused(t.Type, r)) == 0 && !refused {
			wrong = append(wrong, t.Type+" counts as rejected, and the client refuses nothing that is current")
		}
	}
	return wrong
}

// refused gives the names whose newest word to the client is current, and was refused.
func (n *Node) refused(typ string, r *record) []string {
	names := map[string]bool{}
	for _, x := range r.responses {
		for name := range x.Resources {
			names[name] = true
		}
		for _, name := range x.Removed {
			names[name] = true
		}
	}
	maps.Copy(names, r.known.Names)
	for name := range n.held[typ] {
		names[name] = true // of a whole type, what it lacks is refused with it
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool {
		x, content := n.about(typ, r, name, len(r.responses))
		return x == nil || x.answer != Nacked || content != n.current(typ, name) || !r.known.covers(name)
	})
	return slices.Sorted(maps.Keys(names))
}

// undelivered: who has answered everything lacks only what it refused, and that counts as rejected.
func (n *Node) undelivered(t SeenType, r *record, lacking []string) []string {
	if r.waiting() != nil || r.known.Empty() {
		return nil
	}
	var wrong []string
	refused := n.refused(t.Type, r)
	for _, name := range lacking {
		switch {
		case !slices.Contains(refused, name):
			wrong = append(wrong, fmt.Sprintf("%s %s is not sent: the client has answered everything, holds %q, and current is %q",
				t.Type, name, n.held[t.Type][name], n.current(t.Type, name)))
		case t.State != Rejected:
			wrong = append(wrong, fmt.Sprintf("%s counts as %s, and %s was refused", t.Type, t.State, name))
		}
	}
	return wrong
}

// ignored: who asks again for a name gets it, whatever it holds, before or after its next answer.
func (n *Node) ignored(typ string, r *record) []string {
	if r.waiting() != nil {
		return nil
	}
	var wrong []string
	for name, asked := range r.again {
		x, _ := n.about(typ, r, name, len(r.responses))
		if r.known.Names[name] && (x == nil || slices.Index(r.responses, x)+1 < asked) {
			wrong = append(wrong, fmt.Sprintf("%s %s was asked for again, and is not sent", typ, name))
		}
	}
	return wrong
}

// probedInTime: a client that has answered everything is asked for a sign of
// life, unless all that could be sent is what it refused.
func (n *Node) probedInTime(at time.Time) []string {
	subscribed := false
	for typ, r := range n.stream.types {
		if r.waiting() != nil {
			return nil
		}
		refused := n.whole(typ) && r.last() != nil && r.last().answer == Nacked
		subscribed = subscribed || !r.known.Empty() && !refused
	}
	if quiet := at.Sub(later(n.stream.openedAt, n.stream.answeredAt)); subscribed && quiet > n.policy.ProbeInterval+probeSlack {
		return []string{fmt.Sprintf("not asked for a sign of life, %v after the last answer", quiet)}
	}
	return nil
}

// probeSlack is what a probe may come late: where none could be sent, it is
// looked at again after a quarter of the ack timeout.
const probeSlack = 1500 * time.Millisecond
