package ack_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestHistoryKeepsTheNewest(t *testing.T) {
	var h ack.History
	for i := range 100 {
		if got, want := len(h.Events()), min(i, ack.HistoryLimit); got != want {
			t.Fatalf("%d events after %d, want %d", got, i, want)
		}
		h.Add(epoch.Add(time.Duration(i)*time.Second), "sent", mesh.TypeCluster, "v", fmt.Sprint(i))
		events := h.Events()
		for j, e := range events {
			if want := fmt.Sprint(i - len(events) + 1 + j); e.Reason != want || e.Type != "cds" {
				t.Fatalf("event %d after %d is %+v, want %s", j, i+1, e, want)
			}
		}
	}
	events := h.Events()
	events[0].Reason = "changed"
	if h.Events()[0].Reason == "changed" {
		t.Error("Events gives no copy")
	}
}

func TestWorseIsByPrecedence(t *testing.T) {
	order := []ack.State{ack.Disconnected, ack.Rejected, ack.Stale, ack.Pending, ack.Fresh}
	for i, a := range order {
		for j, b := range order {
			if got := ack.Worse(a, b); got != order[min(i, j)] {
				t.Errorf("worse of %s and %s is %s", a, b, got)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	state, reason := ack.Judge([]ack.TypeState{
		{Type: "cds", State: ack.Pending, Reason: "later"},
		{Type: "eds", State: ack.Rejected, Reason: "bad"},
		{Type: "rds", State: ack.Stale, Reason: "slow"},
	})
	if state != ack.Rejected || reason != "eds: bad" {
		t.Errorf("got %s %q", state, reason)
	}
	if state, reason := ack.Judge(nil); state != ack.Fresh || reason != "" {
		t.Errorf("a node without types is %s %q", state, reason)
	}
}

func TestMerge(t *testing.T) {
	early, late := epoch.Add(time.Second), epoch.Add(time.Minute)
	event := func(at time.Time, reason string) ack.Event { return ack.Event{At: at, Event: "sent", Reason: reason} }
	parts := []ack.Node{
		{
			ID: "n", Client: "old", Address: "1", Protocol: "delta", ConnectedAt: epoch, ConfirmedAt: &late, Streams: 1, State: ack.Pending,
			Active: true, Reason: "waits", Types: []ack.TypeState{{Type: "cds"}}, History: []ack.Event{event(epoch, "a"), event(late, "d")},
		},
		{
			ID: "n", Client: "new", Address: "2", Protocol: "sotw", ConnectedAt: early, ConfirmedAt: &early, Streams: 1, State: ack.Rejected,
			Reason: "bad", Types: []ack.TypeState{{Type: "eds"}}, History: []ack.Event{event(early, "b"), event(early, "c")},
		},
		{ID: "n", Client: "new", Address: "2", Protocol: "sotw", Streams: 1, State: ack.Fresh, Active: true},
	}
	n := ack.Merge(parts)
	if n.Streams != 3 || n.State != ack.Rejected || n.Reason != "bad" || n.Protocol != "delta+sotw" || n.Active ||
		n.Client != "new" || n.Address != "2" || !n.ConnectedAt.Equal(epoch) || !n.ConfirmedAt.Equal(late) || len(n.Types) != 2 {
		t.Errorf("got %+v", n)
	}
	order := ""
	for _, e := range n.History {
		order += e.Reason
	}
	if order != "abcd" {
		t.Errorf("history %q, want abcd", order)
	}
	if len(parts[0].Types) != 1 || len(parts[0].History) != 2 {
		t.Error("Merge changed its argument")
	}
}

func TestBehindIsBounded(t *testing.T) {
	s, w := ack.NewStream(ack.Policy{}, epoch), world{}
	tr := s.Track(mesh.TypeEndpoint, 0)
	for i := range 250 {
		name := fmt.Sprintf("%03d", 249-i)
		w[name] = "1"
		tr.Add(mesh.Intern(name))
		tr.Ask(mesh.Intern(name), "", epoch)
	}
	behind := s.Behind(mesh.TypeEndpoint, w)
	if len(behind) != 100 || behind[0].Name != "000" || behind[99].Name != "099" {
		t.Errorf("%d behind, from %s to %s", len(behind), behind[0].Name, behind[len(behind)-1].Name)
	}
	if st := s.State(mesh.TypeEndpoint, epoch, w); st.Behind != 250 {
		t.Errorf("behind %d, want 250", st.Behind)
	}
}

func TestSummarize(t *testing.T) {
	s := ack.Summarize([]ack.Node{{State: ack.Fresh}, {State: ack.Fresh}, {State: ack.Stale}, {State: ack.Rejected}, {State: ack.Pending}, {State: ack.Disconnected}})
	if want := (ack.Summary{Nodes: 6, Fresh: 2, Pending: 1, Stale: 1, Rejected: 1, Disconnected: 1}); s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
}
