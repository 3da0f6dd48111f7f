package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/admin/replicas"
	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// What a table tells at most; JSON has more.
const (
	maxTold      = 10 // changes
	maxEndpoints = 10 // endpoints of one change
)

// storiesJSON gives the stories as a list.
func storiesJSON(all []storyAnswer) []byte {
	list := make([]history.Story, 0, len(all))
	for _, t := range all {
		list = append(list, t.story)
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return []byte("[]\n") // there is nothing in a story that JSON cannot have
	}
	return append(text, '\n')
}

// stories is for people.
func stories(all []storyAnswer, several bool) string {
	var b strings.Builder
	for i, t := range all {
		if i > 0 {
			b.WriteString("\n")
		}
		if several {
			fmt.Fprintf(&b, "server    %s\n", replicas.Printable(t.server))
		}
		writeStory(&b, &t.story)
	}
	return b.String()
}

func writeStory(b *strings.Builder, s *history.Story) {
	fmt.Fprintf(b, "node      %s%s\n", replicas.Printable(string(s.Node)), nodeText(s))
	fmt.Fprintf(b, "cluster   %s\n", replicas.Printable(s.Cluster))
	if s.Endpoint != "" {
		b.WriteString("endpoint  " + replicas.Printable(s.Endpoint))
		if s.EndpointNow != "" {
			fmt.Fprintf(b, ", now %s", s.EndpointNow)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "verdict   %s\n\n%s\n", s.Verdict, replicas.Printable(s.Summary))
	writeChanges(b, s)
	writeHolds(b, s)
	log := "since this server's start"
	if !s.Server.LogComplete {
		log = "older changes are not kept"
	}
	fmt.Fprintf(b, "\nserver %s, generation %d, at %s; its log begins after generation %d at %s, %s\n",
		replicas.Printable(s.Server.Instance), s.Server.Generation, history.Stamp(s.Time), s.Server.LogAfter, history.Stamp(s.Server.LogSince), log)
}

func nodeText(s *history.Story) string {
	n := s.State
	if n == nil {
		return ""
	}
	text := fmt.Sprintf(" (%s), %s", cmp.Or(replicas.Printable(n.Client), "client unknown"), n.State)
	if n.Reason != "" {
		text += ": " + replicas.Printable(n.Reason)
	}
	text += fmt.Sprintf("; connected %s, last answer %s", Age(s.Time, n.ConnectedAt), ageOf(s.Time, n.ConfirmedAt))
	if n.DisconnectedAt != nil {
		text += ", left " + Age(s.Time, *n.DisconnectedAt)
	}
	if n.Resets > 0 {
		text += ", " + counted(n.Resets, "reset")
	}
	return text
}

// writeChanges tells each change as lines in the order of time, with the time passed since its first line.
func writeChanges(b *strings.Builder, s *history.Story) {
	hidden := max(len(s.Changes)-maxTold, 0)
	if n := hidden + s.Earlier; n > 0 {
		fmt.Fprintf(b, "\n%s before these", counted(n, "change"))
		if hidden > 0 {
			b.WriteString(" (-o json shows more)")
		}
		b.WriteString("\n")
	}
	if len(s.Changes) == 0 && s.Verdict != history.NodeUnknown && s.Verdict != history.ClusterUnknown {
		fmt.Fprintf(b, "\nNo change since %s, where this server's log begins.\n", history.Stamp(s.Server.LogSince))
	}
	for i := hidden; i < len(s.Changes); i++ {
		b.WriteString("\n")
		writeChange(b, s, &s.Changes[i])
	}
}

func writeChange(b *strings.Builder, s *history.Story, c *history.Change) {
	var first time.Time
	line := func(at time.Time, what, format string, args ...any) {
		if first.IsZero() {
			first = at
		}
		after := ""
		if d := at.Sub(first); d > 0 {
			after = "+" + shortly(d)
		}
		text := fmt.Sprintf("%s  %9s  %-12s  %s", history.Stamp(at), after, what, fmt.Sprintf(format, args...))
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	event := replicas.Printable(c.Object)
	if c.ResourceVersion != "" {
		event += ", resource version " + replicas.Printable(c.ResourceVersion)
	}
	switch {
	case c.ReceivedAt == nil:
		line(c.PublishedAt, "published", "by %s", event)
	case c.ChangedBy != mesh.ByReceipt && c.ChangedAt != nil:
		line(*c.ChangedAt, "changed", "%s (by %s)", event, timeSource(c.ChangedBy))
		line(*c.ReceivedAt, "received", "")
	default:
		line(*c.ReceivedAt, "received", "%s (it does not tell when it changed)", event)
	}
	line(c.PublishedAt, "published", "generation %d, %s %s%s", c.Generation, c.Type, c.What, endpointsText(c))
	sent := c.Sent
	if sent == nil {
		if c.Note != "" {
			fmt.Fprintf(b, "%24s  %9s  %-12s  %s\n", "", "", "-", replicas.Printable(c.Note))
		}
		return
	}
	line(sent.At, "sent", "%s", sentText(s, sent))
	switch {
	case sent.AckedAt != nil:
		line(*sent.AckedAt, "acknowledged", "")
	case sent.RefusedAt != nil:
		line(*sent.RefusedAt, "refused", "%s", replicas.Printable(sent.Message))
	default:
		fmt.Fprintf(b, "%24s  %9s  %-12s  no answer yet\n", "", "", "-")
	}
}

func timeSource(o mesh.ChangeOrigin) string {
	switch o {
	case mesh.ByTrigger:
		return "its last-change-trigger-time"
	case mesh.ByManagedFields:
		return "its managedFields, whole seconds"
	case mesh.ByReceipt:
	}
	return "its receipt"
}

func sentText(s *history.Story, sent *history.Sent) string {
	text := fmt.Sprintf("to %s, made from generation %d", replicas.Printable(string(s.Node)), sent.Generation)
	if sent.Resources > 1 {
		text += ", with " + counted(sent.Resources-1, "other resource")
	}
	if !sent.Sure {
		text += "; probably: their names were not kept"
	}
	return text
}

func endpointsText(c *history.Change) string {
	if c.Version == "" && len(c.Endpoints) == 0 {
		return ""
	}
	var parts []string
	for i, e := range c.Endpoints {
		if i == maxEndpoints {
			parts = append(parts, fmt.Sprintf("and %d more", len(c.Endpoints)-i+c.MoreEndpoints))
			break
		}
		parts = append(parts, endpointText(e))
	}
	if len(c.Endpoints) <= maxEndpoints && c.MoreEndpoints > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", c.MoreEndpoints))
	}
	text := ""
	if c.Version != "" {
		text = ", version " + replicas.Printable(string(c.Version))
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

func endpointText(e history.EndpointChange) string {
	switch name := replicas.Printable(e.Endpoint); {
	case e.Was == "":
		return fmt.Sprintf("%s added, %s", name, e.Now)
	case e.Now == "":
		return fmt.Sprintf("%s removed, was %s", name, e.Was)
	case e.Was == e.Now:
		return fmt.Sprintf("%s changed, still %s", name, e.Now)
	default:
		return fmt.Sprintf("%s %s, was %s", name, e.Now, e.Was)
	}
}

// shortly is a duration in at most five digits.
func shortly(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Hour:
		return fmt.Sprintf("%.1fs", d.Seconds())
	default:
		return span(d)
	}
}

func writeHolds(b *strings.Builder, s *history.Story) {
	if len(s.Holds) == 0 {
		return
	}
	b.WriteString("\n")
	head := []string{"HOLDS", "STAGE", "ACKNOWLEDGED", "CURRENT", "STREAM"}
	if s.Endpoint != "" {
		head = append(head, "ENDPOINT ACKNOWLEDGED", "ENDPOINT CURRENT")
	}
	rows := []row{{cells: head}}
	for _, h := range s.Holds {
		cells := []string{h.Type, h.Stage, cmp.Or(string(h.Held), "nothing"), cmp.Or(string(h.Current), "gone"), "opened " + Age(s.Time, h.StreamSince)}
		if s.Endpoint != "" {
			cells = append(cells, cmp.Or(string(h.EndpointHeld), "-"), cmp.Or(string(h.EndpointCurrent), "-"))
		}
		r := row{cells: cells}
		if h.Message != "" {
			r.below = []string{"    refused: " + replicas.Printable(h.Message)}
		}
		rows = append(rows, r)
	}
	writeRows(b, rows, false)
}
