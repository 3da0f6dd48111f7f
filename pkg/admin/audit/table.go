package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin/replicas"
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
		return "no node " + replicas.Printable(string(o.Node))
	case s.Nodes == 0:
		return "no nodes"
	}
	var parts []string
	for _, state := range slices.Backward(ack.States()) {
		if n := s.Of(state); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
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
		fmt.Fprintf(b, "server %s, build %s, source %s, generation %d\n", replicas.Printable(s.Instance), replicas.Printable(s.Build), replicas.Printable(s.Source), s.Generation)
		switch {
		case !s.Synced:
			fmt.Fprintf(b, "  warning: the source has not synced, nothing is served: %s\n", replicas.Printable(s.SourceReason))
		case s.SourceLagSeconds > 0:
			fmt.Fprintf(b, "  warning: the source has not been reached for %s: %s\n", span(seconds(s.SourceLagSeconds)), replicas.Printable(s.SourceReason))
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
	id := replicas.Printable(string(n.ID))
	if o.Output != Wide {
		id = shorten(id, maxID)
	}
	behind := 0
	for _, t := range n.Types {
		behind += t.Behind
	}
	cells := []string{id, cmp.Or(replicas.Printable(n.Client), "-"), string(n.State), strconv.Itoa(behind), ageOf(now, n.ConfirmedAt)}
	if o.Output == Wide {
		cells = append(cells, cmp.Or(replicas.Printable(n.Address), "-"), cmp.Or(replicas.Printable(n.Protocol), "-"), strconv.Itoa(n.Streams), Age(now, n.ConnectedAt), strconv.Itoa(n.Resets), yes(n.Active))
	}
	text := replicas.Printable(n.Reason)
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
	kind := replicas.Printable(strings.TrimPrefix(t.Type, "type.googleapis.com/"))
	if o.Output == Wide {
		add("    %s: %s, %d of %d behind, sent %s, acknowledged %s, holds %s, current %s", kind, replicas.Printable(string(t.State)), t.Behind, t.Subscribed,
			ageOf(now, t.SentAt), ageOf(now, t.AckedAt), cmp.Or(replicas.Printable(string(t.HeldVersion)), "nothing"), cmp.Or(replicas.Printable(string(t.CurrentVersion)), "nothing"))
	}
	if n := t.Nack; n != nil {
		add("    %s: refused version %s %s: %s", kind, replicas.Printable(string(n.Version)), Age(now, n.At), replicas.Printable(n.Message))
		for _, name := range n.Resources {
			add("      refused: %s", replicas.Printable(name))
		}
	}
	for i, r := range t.BehindResources {
		if i == maxBehind && o.Output != Wide {
			break
		}
		add("    %s: behind by %s: holds %s, current %s, changed %s%s", kind, replicas.Printable(r.Name), cmp.Or(replicas.Printable(string(r.Held)), "nothing"),
			cmp.Or(replicas.Printable(string(r.Current)), "gone"), Age(now, r.ChangedAt), by(r.Cause))
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
	return " by " + replicas.Printable(cause)
}

// text is one line about a disagreement.
func (d Disagreement) text(now time.Time) string {
	var forms []string
	for _, f := range d.Forms {
		forms = append(forms, fmt.Sprintf("%s holds %s", f.Instance, cmp.Or(string(f.Version), "nothing")))
	}
	word := "pending"
	if d.Stale {
		word = "stale"
	}
	line := fmt.Sprintf("%s: %s %s: %s; since %s", word, d.Type, d.Name, strings.Join(forms, ", "), Age(now, now.Add(-seconds(d.AgeSeconds))))
	if d.Behind != "" {
		line += ", " + d.Behind + " is behind"
	}
	return line
}

func writeDisagreements(b *strings.Builder, o Options, m Merged) {
	if len(m.Disagreements) == 0 {
		return
	}
	fmt.Fprintf(b, "\nthe servers disagree about %s:\n", counted(len(m.Disagreements), "resource"))
	for i, d := range m.Disagreements {
		if i == maxBehind && o.Output != Wide {
			fmt.Fprintf(b, "  and %d more\n", len(m.Disagreements)-i)
			return
		}
		b.WriteString("  " + replicas.Printable(d.text(m.Time)) + "\n")
	}
}

func writeProblems(b *strings.Builder, m Merged) {
	if len(m.Server.Problems) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", counted(len(m.Server.Problems), "problem"))
	for _, p := range m.Server.Problems {
		b.WriteString("  " + replicas.Printable(p.String()) + "\n")
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
