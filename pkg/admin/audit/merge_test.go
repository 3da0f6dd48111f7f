package audit

import (
	"slices"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func of(nodes ...ack.Node) ack.Audit {
	return ack.Audit{Server: ack.ServerStatus{Synced: true}, Time: noon, Nodes: nodes}
}

func TestMergeOfOneIsItself(t *testing.T) {
	if d := cmp.Diff(Merged{Audit: sample()}, Merge([]ack.Audit{sample()})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestMergeSameNode(t *testing.T) {
	a := ack.Node{
		ID: "n", State: ack.Fresh, ConfirmedAt: beforeP(time.Second), Streams: 1, Resets: 1, Protocol: "delta", Active: true,
		History: []ack.Event{{At: before(3 * time.Second), Event: "connected"}, {At: before(time.Second), Event: "acked"}},
		Types:   []ack.TypeState{{Type: "cds"}},
	}
	b := ack.Node{
		ID: "n", State: ack.Stale, Reason: "late", ConfirmedAt: beforeP(9 * time.Second), Streams: 1, Resets: 2, Protocol: "delta+sotw",
		History: []ack.Event{{At: before(2 * time.Second), Event: "sent"}}, Types: []ack.TypeState{{Type: "eds"}},
	}
	gone := ack.Node{ID: "n", State: ack.Disconnected, ConfirmedAt: beforeP(time.Minute), DisconnectedAt: beforeP(50 * time.Second), PodGoneAt: beforeP(40 * time.Second), Types: []ack.TypeState{{Type: "lds"}}}

	got := Merge([]ack.Audit{of(a), of(b)})
	want := ack.Node{
		ID: "n", State: ack.Stale, Reason: "late", ConfirmedAt: beforeP(time.Second), Streams: 2, Resets: 3, Protocol: "delta+sotw",
		History: []ack.Event{a.History[0], b.History[0], a.History[1]}, Types: []ack.TypeState{{Type: "eds"}, {Type: "cds"}},
	}
	if d := cmp.Diff([]ack.Node{want}, got.Nodes); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got.Summary != (ack.Summary{Nodes: 1, Stale: 1}) {
		t.Errorf("summary %+v", got.Summary)
	}

	// A node that moved is what the server that has it says.
	got = Merge([]ack.Audit{of(gone), of(a)})
	if d := cmp.Diff([]ack.Node{a}, got.Nodes); d != "" {
		t.Errorf("moved (-want +got):\n%s", d)
	}

	elsewhere := gone
	elsewhere.PodGoneAt = nil
	if got = Merge([]ack.Audit{of(elsewhere), of(gone)}); got.Nodes[0].PodGoneAt == nil {
		t.Error("a pod that one server knows to be gone")
	}
}

func TestMergeDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var audits []ack.Audit
		for range rapid.IntRange(1, 4).Draw(t, "servers") {
			var a ack.Audit
			for _, id := range []string{"a", "b", "c"} {
				if rapid.Bool().Draw(t, "there") {
					a.Nodes = append(a.Nodes, ack.Node{
						ID: mesh.NodeID(id), State: rapid.SampledFrom(ack.States()).Draw(t, "state"),
						ConfirmedAt: beforeP(time.Duration(rapid.IntRange(0, 9).Draw(t, "s")) * time.Second), Streams: 1,
					})
				}
			}
			audits = append(audits, a)
		}
		want := Merge(audits)
		shuffled := slices.Clone(audits)
		slices.Reverse(shuffled)
		if d := cmp.Diff(want, Merge(shuffled)); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
		s := want.Summary
		if s.Nodes != len(want.Nodes) || s.Fresh+s.Pending+s.Stale+s.Rejected+s.Disconnected != s.Nodes {
			t.Fatalf("summary %+v of %d nodes", s, len(want.Nodes))
		}
	})
}
