package audit

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Merged is the audit of a mesh over all its servers. Written as JSON, it is
// an ack.Audit with three fields more.
type Merged struct {
	// Audit.Server sums up the servers: names joined, synced if all are, the
	// newest generation, the longest lag, every problem once.
	ack.Audit
	// Servers are the single ones, in the order asked; nil for only one.
	Servers []ack.ServerStatus `json:"servers,omitempty"`
	// Disagreements are between servers of one build, the oldest first, at most 100.
	Disagreements []Disagreement `json:"disagreements,omitempty"`
	// Envoys are the running Envoys that were asked for what they have, in the
	// order asked. Their nodes are active if all of it is in effect.
	Envoys []Inspected `json:"envoys,omitempty"`
}

// Merge makes one audit of several. A node that several servers know is there
// once: in the worst state of those that it is connected to (it is
// disconnected only if no server has it), with its newest confirmation, the
// types and the history of all. The summary counts merged nodes.
func Merge(audits []ack.Audit) Merged {
	var m Merged
	if len(audits) == 0 {
		return m
	}
	byID := map[mesh.NodeID]ack.Node{}
	for i, a := range audits {
		if i == 0 {
			m.Server, m.Time = a.Server, a.Time
		} else {
			m.Server = mergeServers(m.Server, a.Server)
			m.Time = latest(m.Time, a.Time)
		}
		for _, n := range a.Nodes {
			if old, ok := byID[n.ID]; ok {
				n = mergeNodes(old, n)
			}
			byID[n.ID] = n
		}
		if len(audits) > 1 {
			m.Servers = append(m.Servers, a.Server)
		}
	}
	m.Nodes = make([]ack.Node, 0, len(byID))
	for _, n := range byID {
		m.Nodes = append(m.Nodes, n)
	}
	slices.SortFunc(m.Nodes, func(a, b ack.Node) int { return cmp.Compare(a.ID, b.ID) })
	if m.Server.Problems == nil {
		m.Server.Problems = []mesh.Problem{} // [] in JSON, not null
	}
	m.Summary = ack.Summarize(m.Nodes)
	return m
}

// mergeServers leaves Sources to the servers one by one: their versions are proven apart.
func mergeServers(a, b ack.ServerStatus) ack.ServerStatus {
	problems := slices.Concat(a.Problems, b.Problems)
	slices.SortFunc(problems, mesh.Problem.Compare)
	return ack.ServerStatus{ // without digests, which are of one server each
		Instance:         joined(a.Instance, b.Instance, ", "),
		Build:            joined(a.Build, b.Build, ", "),
		Source:           joined(a.Source, b.Source, ", "),
		Synced:           a.Synced && b.Synced,
		Generation:       max(a.Generation, b.Generation),
		SourceLagSeconds: max(a.SourceLagSeconds, b.SourceLagSeconds),
		SourceReason:     joined(a.SourceReason, b.SourceReason, "; "),
		Problems:         slices.Compact(problems),

		AckTimeoutSeconds: max(a.AckTimeoutSeconds, b.AckTimeoutSeconds),
	}
}

// joined gives both texts, or one when the other adds nothing.
func joined(a, b, separator string) string {
	if b == "" || slices.Contains(strings.Split(a, separator), b) {
		return a
	}
	if a == "" {
		return b
	}
	return a + separator + b
}

// mergeNodes joins what two servers say of one node.
func mergeNodes(a, b ack.Node) ack.Node {
	if rank(b.State) < rank(a.State) {
		a, b = b, a // a is in the worse state, whose reason and stream count
	}
	m := a
	m.ConfirmedAt = latestOf(a.ConfirmedAt, b.ConfirmedAt)
	m.DisconnectedAt = latestOf(a.DisconnectedAt, b.DisconnectedAt)
	m.PodGoneAt = latestOf(a.PodGoneAt, b.PodGoneAt)
	if m.State != ack.Disconnected {
		m.DisconnectedAt, m.PodGoneAt = nil, nil
	}
	m.Streams = a.Streams + b.Streams
	m.Resets = a.Resets + b.Resets
	m.Active = a.Active && (b.Active || b.State == ack.Disconnected)
	m.History = slices.Concat(a.History, b.History)
	slices.SortStableFunc(m.History, func(x, y ack.Event) int { return x.At.Compare(y.At) })
	m.History = m.History[max(0, len(m.History)-ack.HistoryLimit):]
	if b.State != ack.Disconnected {
		m.Types = slices.Concat(a.Types, b.Types)
		m.Protocol = protocols(a.Protocol, b.Protocol)
	}
	return m
}

// protocols gives "delta", "sotw" or "delta+sotw".
func protocols(a, b string) string {
	names := slices.Concat(strings.Split(a, "+"), strings.Split(b, "+"))
	slices.Sort(names)
	return strings.TrimPrefix(strings.Join(slices.Compact(names), "+"), "+")
}

// rank orders states from the worst. Disconnected comes last here, though it
// comes first in the states' precedence: one that moved from a server to another is
// what the server that has it says.
func rank(s ack.State) int {
	if s == ack.Disconnected {
		return len(ack.States())
	}
	return s.Precedence()
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func latestOf(a, b *time.Time) *time.Time {
	if a == nil || (b != nil && b.After(*a)) {
		return b
	}
	return a
}
