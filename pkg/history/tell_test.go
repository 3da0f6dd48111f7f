package history

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	cluster = "echo.default.svc.cluster.local:8080"
	addr    = "10.0.0.1:80"
)

func sec(n int) time.Time { return time.Unix(int64(1000+n), 0).UTC() }

// entry is a change of the assignment at second g, in which addr goes from was to now.
func entry(g int, was, now string) Entry {
	e := Entry{
		Generation: mesh.Generation(g), Resource: name(cluster), What: Changed, Version: version16(g), PublishedAt: sec(g),
		Cause: mesh.Cause{
			Object: mesh.Key{Kind: mesh.KindEndpointSlice, Namespace: "default", Name: "echo-1"}, ResourceVersion: "17",
			ChangedAt: sec(g - 1), ChangedBy: mesh.ByTrigger, ReceivedAt: sec(g),
		},
	}
	if was != now {
		e.Endpoints = []EndpointChange{{addr, was, now}, {"10.0.0.9:80", "", "HEALTHY"}}
	}
	return e
}

func version16(g int) mesh.Version { return mesh.VersionOf([]byte{byte(g)}) }

func delivery(g, sent, answered int, refused bool) ack.Delivery {
	d := ack.Delivery{
		Type: mesh.TypeEndpoint, Generation: mesh.Generation(g), SentAt: sec(sent), Count: 1, Refused: refused,
		Names: []ack.Carried{{Name: mesh.Intern(cluster), Version: version16(g)}},
	}
	if answered > 0 {
		d.AnsweredAt = sec(answered)
	}
	if refused {
		d.Message = "bad weight"
	}
	return d
}

// facts are of a node that is connected since second 5 and holds generation held,
// while generation 20 is current and the log begins after 8.
func facts(stage ack.Stage, held int, entries ...Entry) Facts {
	h := Held{
		ResourceName: name(cluster), ConnectedAt: sec(5), Current: version16(20),
		ResourceState: ack.ResourceState{Stage: stage},
	}
	if held > 0 {
		h.Held = version16(held)
	}
	confirmed := sec(29)
	return Facts{
		Instance: "ABC", Generation: 20, Time: sec(30), Node: "proxy-1", Cluster: cluster, Endpoint: addr,
		Entries: entries, Floor: Floor{Generation: 8, At: sec(8)}, Exists: true, Known: true,
		State: ack.Node{Client: "test", State: ack.Fresh, Streams: 1, ConnectedAt: sec(5), ConfirmedAt: &confirmed},
		Held:  []Held{h},
	}
}

func with(f Facts, edit func(*Facts)) Facts {
	edit(&f)
	return f
}

func TestVerdicts(t *testing.T) {
	current := facts(ack.Held, 20, entry(20, "HEALTHY", ""))
	tests := []struct {
		name    string
		facts   Facts
		want    Verdict
		summary string
	}{
		{"current", current, Current, "10.0.0.1:80 was removed at 1970-01-01T00:17:00.000Z by EndpointSlice default/echo-1 at resource version 17. proxy-1 holds the current form."},
		{"node unknown", with(current, func(f *Facts) { f.Known, f.Held = false, nil }), NodeUnknown, "has no stream at this server"},
		{
			"cluster unknown", with(current, func(f *Facts) { f.Exists, f.Held, f.Entries = false, nil, nil }), ClusterUnknown,
			"There is no cluster " + cluster + ", and there was none since 1970-01-01T00:16:48.000Z, where the log begins.",
		},
		{
			"ambiguous", with(current, func(f *Facts) { f.Exists, f.Held, f.Entries, f.Candidates = false, nil, nil, []string{"a", "b"} }),
			ClusterUnknown, "may stand for several clusters: a, b.",
		},
		{
			"disconnected", with(current, func(f *Facts) {
				at := sec(25)
				f.Held, f.State.State, f.State.Streams, f.State.DisconnectedAt = nil, ack.Disconnected, 0, &at
			}),
			Disconnected, "proxy-1 has no stream here since 1970-01-01T00:17:05.000Z: what it holds now is not known.",
		},
		{"not subscribed", with(current, func(f *Facts) { f.Held = nil }), NotSubscribed, "does not subscribe to"},
		{
			"refused", with(facts(ack.Refused, 15), func(f *Facts) { f.Held[0].Message = "bad weight" }), Rejected,
			"proxy-1 refused the current eds: bad weight",
		},
		{"not sent", facts(ack.NotSent, 15, entry(20, "HEALTHY", "")), Behind, "which was not sent yet"},
		{"unanswered", facts(ack.Unanswered, 15, entry(20, "HEALTHY", "")), Behind, "it may hold either"},
		{
			"silent", with(current, func(f *Facts) { f.State.Types = []ack.TypeState{{State: ack.Stale}} }), Unconfirmed,
			"has not answered since 1970-01-01T00:17:09.000Z",
		},
		{"never seen", facts(ack.Held, 20), Current, "10.0.0.1:80 is not in the cluster, and was not since 1970-01-01T00:16:48.000Z, where the log begins: it was never there, or that is older than the log."},
		{
			"older than the log", with(facts(ack.Held, 20), func(f *Facts) { f.Assignment = assignment(t, map[string]place{"10.0.0.1": {}}) }), Current,
			"10.0.0.1:80 is HEALTHY, unchanged since before",
		},
	}
	for _, test := range tests {
		s := Tell(test.facts)
		if s.Verdict != test.want || !strings.Contains(s.Summary, test.summary) {
			t.Errorf("%s: %s, %q; want %s, %q", test.name, s.Verdict, s.Summary, test.want, test.summary)
		}
		// Of an endpoint of who knows which cluster nothing is told.
		if ambiguous := len(test.facts.Candidates) > 0; ambiguous != (s.EndpointNow == "") {
			t.Errorf("%s: the endpoint is now %q", test.name, s.EndpointNow)
		}
	}
}

// What a node holds is found by going back from what is current.
func TestEndpointInTheFormHeld(t *testing.T) {
	tests := []struct {
		name  string
		facts Facts
		want  Presence
	}{
		{"current", facts(ack.Held, 20, entry(20, "HEALTHY", "")), Absent},
		{"before its removal", facts(ack.Unanswered, 15, entry(15, "HEALTHY", "DRAINING"), entry(20, "DRAINING", "")), "DRAINING"},
		{"before two changes", facts(ack.NotSent, 10, entry(10, "", ""), entry(15, "HEALTHY", "DRAINING"), entry(20, "DRAINING", "")), "HEALTHY"},
		{"something else changed", facts(ack.NotSent, 15, entry(15, "DRAINING", ""), entry(20, "", "")), Absent},
		{"nothing acknowledged", facts(ack.Unanswered, 0, entry(20, "HEALTHY", "")), Absent},
		{"of a client that came back", with(facts(ack.Unanswered, 0, entry(20, "HEALTHY", "")), func(f *Facts) {
			f.Held = slices.Clone(f.Held)
			f.Held[0].Unknown = true
		}), Unknown},
		{"a form that nobody knows", facts(ack.Unanswered, 7, entry(20, "HEALTHY", "")), Unknown},
		{"by what it was sent", with(facts(ack.Unanswered, 12, entry(20, "HEALTHY", "")), func(f *Facts) {
			f.Deliveries = []ack.Delivery{delivery(12, 12, 13, false)}
		}), "HEALTHY"},
		{"sent before the log begins", with(facts(ack.Unanswered, 7, entry(20, "HEALTHY", "")), func(f *Facts) {
			f.Deliveries = []ack.Delivery{delivery(7, 7, 8, false)}
		}), Unknown},
		{"too many endpoints to name", facts(ack.NotSent, 15, entry(15, "", ""), Entry{
			Generation: 20, Resource: name(cluster), What: Changed, Version: version16(20), PublishedAt: sec(20), More: 3,
		}), Unknown},
	}
	for _, test := range tests {
		if got := Tell(test.facts).Holds[0].EndpointHeld; got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// How a node got a change, or why that is not known.
func TestSent(t *testing.T) {
	one, two := entry(15, "", "HEALTHY"), entry(20, "HEALTHY", "")
	deliveries := func(f Facts, d ...ack.Delivery) Facts { f.Deliveries = d; return f }
	many := ack.Delivery{
		Type: mesh.TypeEndpoint, Generation: 15, SentAt: sec(16), AnsweredAt: sec(17), Count: 100,
		Names: []ack.Carried{{Name: mesh.Intern("a")}, {Name: mesh.Intern("z")}},
	}
	tests := []struct {
		name  string
		facts Facts
		// sent, acked and note are of the first change.
		sent, acked int
		note        string
	}{
		{name: "acknowledged", facts: deliveries(facts(ack.Held, 20, one, two), delivery(15, 16, 17, false), delivery(20, 21, 22, false)), sent: 16, acked: 17},
		{name: "no answer yet", facts: deliveries(facts(ack.Unanswered, 0, one), delivery(15, 16, 0, false)), sent: 16},
		{name: "sent twice", facts: deliveries(facts(ack.Held, 15, one), delivery(15, 16, 0, false), delivery(15, 18, 19, false)), sent: 18, acked: 19},
		{name: "again later", facts: deliveries(facts(ack.Held, 15, one), delivery(15, 16, 17, false), delivery(18, 18, 19, false)), sent: 16, acked: 17},
		{name: "refused, then taken", facts: deliveries(facts(ack.Held, 15, one), delivery(15, 16, 17, true), delivery(15, 18, 19, false)), sent: 18, acked: 19},
		{name: "refused", facts: deliveries(facts(ack.Refused, 0, one), delivery(15, 16, 17, true)), sent: 16},
		{name: "overtaken", facts: deliveries(facts(ack.Held, 20, one, two), delivery(20, 21, 22, false)), note: "overtaken by generation 20"},
		{name: "among many", facts: deliveries(facts(ack.Held, 20, one), many), sent: 16, acked: 17},
		{name: "not sent", facts: facts(ack.NotSent, 0, one), note: "not sent yet"},
		{name: "not subscribed", facts: with(facts(ack.Held, 20, one), func(f *Facts) { f.Held = nil }), note: "does not subscribe"},
		{name: "forgotten", facts: with(facts(ack.Held, 20, one), func(f *Facts) { f.Gone = sec(19) }), note: "older than what is remembered of this node"},
		{name: "connected later", facts: with(facts(ack.NotSent, 0, one), func(f *Facts) { f.Held[0].ConnectedAt = sec(18) }), note: "the node connected later"},
		{name: "came with it", facts: with(facts(ack.Held, 15, one), func(f *Facts) { f.Held[0].ConnectedAt = sec(18) }), note: "had this form already"},
	}
	for _, test := range tests {
		c := Tell(test.facts).Changes[0]
		var want *Sent
		if test.sent > 0 {
			want = &Sent{At: sec(test.sent)}
		}
		if (c.Sent == nil) != (want == nil) || !strings.Contains(c.Note, test.note) || (test.note == "") != (c.Note == "") {
			t.Errorf("%s: %+v, %q", test.name, c.Sent, c.Note)
			continue
		}
		if want == nil {
			continue
		}
		if acked := c.Sent.AckedAt; !c.Sent.At.Equal(want.At) || (acked != nil) != (test.acked > 0) || acked != nil && !acked.Equal(sec(test.acked)) {
			t.Errorf("%s: %+v", test.name, c.Sent)
		}
		if sure := test.name != "among many"; c.Sent.Sure != sure || (test.name == "refused") != (c.Sent.RefusedAt != nil) {
			t.Errorf("%s: %+v", test.name, c.Sent)
		}
	}
}

// Only what has to do with the endpoint is told of it, and all of the cluster.
func TestChangesTold(t *testing.T) {
	removed := Entry{Generation: 18, Resource: mesh.ResourceName{Type: mesh.TypeCluster, Name: cluster}, What: Removed}
	edited := Entry{Generation: 19, Resource: removed.Resource, What: Changed}
	f := facts(ack.Held, 20, entry(10, "", "HEALTHY"), entry(15, "", ""), removed, edited)
	s := Tell(f)
	if len(s.Changes) != 2 || s.Changes[0].Generation != 10 || s.Changes[1].Generation != 18 || len(s.Changes[0].Endpoints) != 1 {
		t.Errorf("of the endpoint: %+v", s.Changes)
	}
	f.Endpoint = ""
	if s = Tell(f); len(s.Changes) != 4 || len(s.Changes[0].Endpoints) != 2 {
		t.Errorf("of the cluster: %+v", s.Changes)
	}
	for g := range 200 {
		f.Entries = append(f.Entries, entry(20+g, "", ""))
	}
	if s = Tell(f); len(s.Changes) != maxChanges || s.Earlier != 104 || s.Changes[99].Generation != 219 {
		t.Errorf("%d changes, %d earlier", len(s.Changes), s.Earlier)
	}
}

// A node that lost one of its streams, and holds the cluster on another, may hold an
// old form on the lost one all the same.
func TestTellOfALostStream(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	name := mesh.ResourceName{Type: mesh.TypeEndpoint, Name: "a"}
	f := Facts{Node: "n", Cluster: "a", Known: true, Exists: true, State: ack.Node{State: ack.Disconnected, Streams: 1, DisconnectedAt: &at}}
	for _, held := range [][]Held{nil, {{ResourceName: name, ResourceState: ack.ResourceState{Stage: ack.Held}}}} {
		f.Held = held
		s := Tell(f)
		if want := "n has lost a stream here since 2026-01-02T03:04:05.000Z: what it holds now is not known."; s.Verdict != Disconnected || s.Summary != want {
			t.Errorf("%d holds: %s, %q", len(held), s.Verdict, s.Summary)
		}
	}
	f.Held[0].Stage = ack.Unanswered
	if s := Tell(f); s.Verdict != Behind {
		t.Errorf("what is known to be behind is %s", s.Verdict)
	}
}
