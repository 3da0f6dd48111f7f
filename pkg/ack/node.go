package ack

import (
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Worse gives the state that decides when both apply.
func Worse(a, b State) State {
	if a.Precedence() <= b.Precedence() {
		return a
	}
	return b
}

// Judge gives a node's state and reason from those of its types.
func Judge(types []TypeState) (State, string) {
	state, reason := Fresh, ""
	for _, t := range types {
		if w := Worse(state, t.State); w != state {
			state, reason = w, ""
			if t.Reason != "" {
				reason = t.Type + ": " + t.Reason
			}
		}
	}
	return state, reason
}

// Merge joins what the streams of one node say. parts must not be empty, and
// come in the order in which the streams were opened.
func Merge(parts []Node) Node {
	out := parts[0]
	out.Types = slices.Clone(out.Types)
	out.History = slices.Clone(out.History)
	for _, p := range parts[1:] {
		out.Streams += p.Streams
		out.Types = append(out.Types, p.Types...)
		out.History = append(out.History, p.History...)
		out.Client, out.Address = p.Client, p.Address
		if !strings.Contains(out.Protocol, p.Protocol) {
			out.Protocol += "+" + p.Protocol
		}
		if newer(p.ConfirmedAt, out.ConfirmedAt) {
			out.ConfirmedAt = p.ConfirmedAt
		}
		if w := Worse(out.State, p.State); w != out.State {
			out.State, out.Reason = w, p.Reason
		}
		out.Active = out.Active && p.Active
	}
	slices.SortStableFunc(out.History, func(a, b Event) int { return a.At.Compare(b.At) })
	return out
}

func newer(a, b *time.Time) bool { return a != nil && (b == nil || a.After(*b)) }

// Summarize counts nodes by state.
func Summarize(nodes []Node) Summary {
	s := Summary{Nodes: len(nodes)}
	for _, n := range nodes {
		*s.of(n.State)++
	}
	return s
}

// HistoryLimit is how many events a node keeps.
const HistoryLimit = 32

// History is the newest events of a node, oldest first. The zero value is empty.
type History struct {
	ring [HistoryLimit]Event
	next int
	full bool
}

// Add appends an event; the oldest goes when there are more than 32.
func (h *History) Add(at time.Time, event string, t mesh.Type, version mesh.Version, reason string) {
	short := ""
	if t != "" {
		short = t.Short()
	}
	h.ring[h.next] = Event{At: at, Event: event, Type: short, Version: version, Reason: reason}
	if h.next++; h.next == len(h.ring) {
		h.next, h.full = 0, true
	}
}

// Events gives them, oldest first.
func (h *History) Events() []Event {
	if !h.full {
		return slices.Clone(h.ring[:h.next])
	}
	return append(slices.Clone(h.ring[h.next:]), h.ring[:h.next]...)
}
