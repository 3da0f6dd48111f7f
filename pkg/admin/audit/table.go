package audit

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
)

// What a table shows at most; wide shows everything.
const (
	maxID     = 40 // runes of a node's id
	maxBehind = 3  // resources of one type that a node is behind by
)

// table is for people: the summary, the nodes with what is wrong below each, the problems.
func table(o Options, m Merged) string {
	var b strings.Builder
	b.WriteString(headline(o, m.Summary) + "\n")
	writeServers(&b, m)
	if len(m.Nodes) > 0 {
		b.WriteString("\n")
		writeRows(&b, nodeRows(o, m), o.Colour)
	}
	writeDisagreements(&b, o, m)
	writeEnvoys(&b, o, m)
	writeProblems(&b, m)
	return b.String()
}

// headline is "3 nodes: 2 fresh, 1 stale".
func headline(o Options, s ack.Summary) string {
	switch {
	case s.Nodes == 0 && o.Node != "":
		return "no node " + printable(string(o.Node))
	case s.Nodes == 0:
		return "no nodes"
	}
	var parts []string
	for _, p := range []struct {
		n     int
		state ack.State
	}{{s.Fresh, ack.Fresh}, {s.Pending, ack.Pending}, {s.Stale, ack.Stale}, {s.Rejected, ack.Rejected}, {s.Disconnected, ack.Disconnected}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.state))
		}
	}
	return counted(s.Nodes, "node") + ": " + strings.Join(parts, ", ")
}

func writeServers(b *strings.Builder, m Merged) {
	servers := m.Servers
	if servers == nil {
		servers = []ack.ServerStatus{m.Server}
	}
	for _, s := range servers {
		fmt.Fprintf(b, "server %s, build %s, source %s, generation %d\n", printable(s.Instance), printable(s.Build), printable(s.Source), s.Generation)
		switch {
		case !s.Synced:
			fmt.Fprintf(b, "  warning: the source has not synced, nothing is served: %s\n", printable(s.SourceReason))
		case s.SourceLagSeconds > 0:
			fmt.Fprintf(b, "  warning: the source has not been reached for %s: %s\n", span(seconds(s.SourceLagSeconds)), printable(s.SourceReason))
		}
	}
}

func nodeRows(o Options, m Merged) []row {
	head := []string{"NODE", "CLIENT", "STATE", "BEHIND", "CONFIRMED"}
	if o.Output == Wide {
		head = append(head, "ADDRESS", "PROTOCOL", "STREAMS", "CONNECTED", "RESETS", "ACTIVE")
	}
	rows := []row{{cells: append(head, "REASON")}}
	for _, n := range m.Nodes {
		rows = append(rows, nodeRow(o, m.Time, n))
	}
	return rows
}

func nodeRow(o Options, now time.Time, n ack.Node) row {
	id := printable(string(n.ID))
	if o.Output != Wide {
		id = shorten(id, maxID)
	}
	behind := 0
	for _, t := range n.Types {
		behind += t.Behind
	}
	cells := []string{id, cmp.Or(printable(n.Client), "-"), string(n.State), strconv.Itoa(behind), ageOf(now, n.ConfirmedAt)}
	if o.Output == Wide {
		cells = append(cells, cmp.Or(printable(n.Address), "-"), cmp.Or(printable(n.Protocol), "-"), strconv.Itoa(n.Streams), Age(now, n.ConnectedAt), strconv.Itoa(n.Resets), yes(n.Active))
	}
	text := printable(n.Reason)
	if text == "" && n.DisconnectedAt != nil {
		text = "left " + Age(now, *n.DisconnectedAt)
	}
	r := row{cells: append(cells, text), state: n.State}
	for _, t := range n.Types {
		r.below = append(r.below, typeLines(o, now, t)...)
	}
	return r
}

// typeLines says what is wrong with one type of a node; in wide, how it is in any case.
// A type without a short name goes by its message's.
func typeLines(o Options, now time.Time, t ack.TypeState) []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	kind := printable(strings.TrimPrefix(t.Type, "type.googleapis.com/"))
	if o.Output == Wide {
		add("    %s: %s, %d of %d behind, sent %s, acknowledged %s, holds %s, current %s", kind, printable(string(t.State)), t.Behind, t.Subscribed,
			ageOf(now, t.SentAt), ageOf(now, t.AckedAt), cmp.Or(printable(string(t.HeldVersion)), "nothing"), cmp.Or(printable(string(t.CurrentVersion)), "nothing"))
	}
	if n := t.Nack; n != nil {
		add("    %s: refused version %s %s: %s", kind, printable(string(n.Version)), Age(now, n.At), printable(n.Message))
		for _, name := range n.Resources {
			add("      refused: %s", printable(name))
		}
	}
	for i, r := range t.BehindResources {
		if i == maxBehind && o.Output != Wide {
			break
		}
		add("    %s: behind by %s: holds %s, current %s, changed %s%s", kind, printable(r.Name), cmp.Or(printable(string(r.Held)), "nothing"),
			cmp.Or(printable(string(r.Current)), "gone"), Age(now, r.ChangedAt), by(r.Cause))
	}
	shown := len(t.BehindResources)
	if o.Output != Wide {
		shown = min(shown, maxBehind)
	}
	if shown > 0 && t.Behind > shown {
		add("    %s: and %d more", kind, t.Behind-shown)
	}
	return lines
}

func by(cause string) string {
	if cause == "" {
		return ""
	}
	return " by " + printable(cause)
}

func writeProblems(b *strings.Builder, m Merged) {
	if len(m.Server.Problems) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", counted(len(m.Server.Problems), "problem"))
	for _, p := range m.Server.Problems {
		b.WriteString("  " + printable(p.String()) + "\n")
	}
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}
