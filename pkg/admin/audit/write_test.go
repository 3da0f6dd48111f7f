package audit

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin/envoyaudit"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) time.Time   { return noon.Add(-d) }
func beforeP(d time.Duration) *time.Time { t := before(d); return &t }

// sample has a node in every state.
func sample() ack.Audit {
	return ack.Audit{
		Server: ack.ServerStatus{
			Instance: "xds-0", Build: "v0.1.0", Source: "kubernetes", Synced: true, Generation: 412,
			SourceLagSeconds: 75, SourceReason: "dial tcp 10.96.0.1:443: connection refused",
			Problems: []mesh.Problem{
				{Object: "Service default/x", Field: "spec.ports[0].appProtocol", Reason: `"htpp" is no protocol`},
				{Object: "file broken.yaml", Reason: "line 3: did not find expected key"},
			},
		},
		Time:    noon,
		Summary: ack.Summary{Nodes: 5, Fresh: 1, Pending: 1, Stale: 1, Rejected: 1, Disconnected: 1},
		Nodes: []ack.Node{
			{
				ID: "api.default", Client: "freshmesh 0.1", Address: "10.0.0.4:4444", Protocol: "delta", ConnectedAt: before(26 * time.Hour),
				ConfirmedAt: beforeP(3 * time.Second), Streams: 1, State: ack.Fresh, Active: true,
				Types: []ack.TypeState{{
					Type: "cds", Subscribed: 2, State: ack.Fresh, SentAt: beforeP(time.Hour), AckedAt: beforeP(time.Hour),
					HeldVersion: "00000000000000aa", CurrentVersion: "00000000000000aa",
				}},
			},
			{
				ID: "batch.default", Client: "gRPC Go 1.85.0", Address: "10.0.0.9:4444", Protocol: "sotw", ConnectedAt: before(5 * time.Minute),
				ConfirmedAt: beforeP(4 * time.Minute), DisconnectedAt: beforeP(125 * time.Second), State: ack.Disconnected,
			},
			{
				ID: "checkout-service-with-a-long-name-7d9f8b6c5-x2x4z.production", Client: "envoy 1.40.0", Address: "10.0.0.5:4444",
				Protocol: "delta", ConnectedAt: before(time.Hour), Streams: 1, State: ack.Stale, Reason: "eds: sent 12.3s ago, no ACK", Resets: 2,
				Types: []ack.TypeState{{
					Type: "eds", Subscribed: 200, State: ack.Stale, Behind: 5, StaleForSeconds: 7.3, SentAt: beforeP(12 * time.Second),
					HeldVersion: "00000000000000aa", CurrentVersion: "00000000000000bb",
					BehindResources: []ack.BehindResource{
						{Name: "a.default.svc.cluster.local:80", Held: "0000000000000001", Current: "0000000000000002", ChangedAt: before(13 * time.Second), Cause: "EndpointSlice default/a-x1"},
						{Name: "b.default.svc.cluster.local:80", Current: "0000000000000003", ChangedAt: before(13 * time.Second), Cause: "EndpointSlice default/b-x1"},
						{Name: "c.default.svc.cluster.local:80", Held: "0000000000000004", ChangedAt: before(13 * time.Second)},
						{Name: "d.default.svc.cluster.local:80", Held: "0000000000000005", Current: "0000000000000006", ChangedAt: before(13 * time.Second)},
					},
				}},
			},
			{
				ID: "evil\x1b[2J\nnode", Client: "gRPC C-core linux Python 1.85.3", Address: "10.0.0.6:4444", Protocol: "sotw", ConnectedAt: before(10 * time.Second),
				ConfirmedAt: beforeP(100 * time.Millisecond), Streams: 1, State: ack.Rejected, Reason: "cds: refused version 00000000000000cc",
				History: []ack.Event{{At: before(9 * time.Second), Event: "rejected", Type: "cds", Version: "00000000000000cc", Reason: "bad lb_policy"}},
				Types: []ack.TypeState{{
					Type: "cds", Wildcard: true, Subscribed: 7, State: ack.Rejected, Behind: 2, HeldVersion: "00000000000000aa", CurrentVersion: "00000000000000cc",
					Nack: &ack.Nack{
						Version: "00000000000000cc", At: before(9 * time.Second), Message: "Error parsing clusters:\n  a: bad \x1b[31mlb_policy\n  b: bad lb_policy",
						Resources: []string{"a.default.svc.cluster.local:80", "b.default.svc.cluster.local:80"},
					},
				}},
			},
			{
				ID: "web.default", Client: "envoy 1.40.0", Address: "10.0.0.7:4444", Protocol: "delta", ConnectedAt: before(time.Hour),
				ConfirmedAt: beforeP(2 * time.Second), Streams: 1, State: ack.Pending, Reason: "eds: sent 0.1s ago",
				Types: []ack.TypeState{{Type: "eds", Subscribed: 3, State: ack.Pending, Behind: 1}},
			},
		},
	}
}

// inspected has an Envoy where all is in effect, one where much is not, and one that was not reached.
func inspected() []envoyAnswer {
	good := envoyaudit.Report{
		Node: "web.default", Client: "envoy 1.40.0", InEffect: true, Differences: []envoyaudit.Difference{},
		Compared: envoyaudit.Compared{Clusters: 12, Endpoints: 1, Listeners: 1, Routes: 2},
	}
	bad := good
	bad.Node, bad.InEffect = "evil\x1b[2J\nnode", false
	for i := range maxDifferences {
		bad.Differences = append(bad.Differences, envoyaudit.Difference{
			Type: "eds", Name: "a.default.svc.cluster.local:80", Endpoint: fmt.Sprintf("10.0.0.%d:80", i), Kind: envoyaudit.Missing, Want: "00000000000000bb",
		})
	}
	bad.Differences = append(bad.Differences, envoyaudit.Difference{
		Type: "lds", Name: "outbound", Kind: envoyaudit.Refused, Has: "00000000000000aa", Want: "00000000000000bb", Detail: "no\n\x1b[31msuch address",
		Fields: []envoyaudit.Field{{Path: "address.socket_address.address", Want: "no address"}},
	})
	return []envoyAnswer{
		{admin: "http://10.0.0.7:15000", report: good},
		{admin: "http://10.0.0.6:15000", report: bad},
		{admin: "http://10.0.0.5:15000", err: errors.New("could not ask")},
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

func TestGolden(t *testing.T) {
	moved := sample()
	moved.Server.Instance, moved.Server.Synced, moved.Server.SourceReason = "xds-1", false, "waiting for pods"
	moved.Nodes = moved.Nodes[1:2]
	moved.Nodes[0].State, moved.Nodes[0].DisconnectedAt = ack.Fresh, nil
	empty := sample()
	empty.Nodes, empty.Server.Problems, empty.Server.SourceLagSeconds = nil, nil, 0
	for _, tt := range []struct {
		file   string
		o      Options
		from   []ack.Audit
		envoys []envoyAnswer
	}{
		{"table.txt", Options{Output: Table}, []ack.Audit{sample()}, nil},
		{"colour.txt", Options{Output: Table, Colour: true}, []ack.Audit{sample()}, nil},
		{"wide.txt", Options{Output: Wide}, []ack.Audit{sample()}, nil},
		{"one.json", Options{Output: JSON}, []ack.Audit{sample()}, nil},
		{"one.yaml", Options{Output: YAML}, []ack.Audit{sample()}, nil},
		{"two-servers.txt", Options{Output: Table}, []ack.Audit{sample(), moved}, nil},
		{"two-servers.yaml", Options{Output: YAML}, []ack.Audit{sample(), moved}, nil},
		{"empty.txt", Options{Output: Table}, []ack.Audit{empty}, nil},
		{"empty.json", Options{Output: JSON}, []ack.Audit{empty}, nil},
		{"envoys.txt", Options{Output: Table}, []ack.Audit{sample()}, inspected()},
		{"envoys-wide.txt", Options{Output: Wide}, []ack.Audit{sample()}, inspected()},
		{"envoys.yaml", Options{Output: YAML}, []ack.Audit{sample()}, inspected()},
	} {
		t.Run(tt.file, func(t *testing.T) {
			var b strings.Builder
			m := Merge(tt.from)
			m.confirm(tt.envoys)
			if err := write(&b, tt.o, m); err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(tt.file, ".txt") && !tt.o.Colour && strings.ContainsRune(b.String(), '\x1b') {
				t.Error("an escape sequence came through")
			}
			golden(t, tt.file, b.String())
		})
	}
}

// TestOtherTypes: a type that the mesh does not generate has no short name; people
// see its message's name, programs the type URL.
func TestOtherTypes(t *testing.T) {
	const runtime = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
	a := ack.Audit{Time: noon, Summary: ack.Summary{Nodes: 1, Rejected: 1}, Nodes: []ack.Node{{
		ID: "n", State: ack.Rejected, Reason: runtime + ": no such layer", ConnectedAt: noon,
		Types: []ack.TypeState{{Type: runtime, Subscribed: 1, Behind: 1, State: ack.Rejected, Nack: &ack.Nack{Version: "aa", At: noon, Message: "no such layer", Resources: []string{"rt"}}}},
	}}}
	for format, want := range map[string]string{
		Table: "    envoy.service.runtime.v3.Runtime: refused version aa now: no such layer\n      refused: rt\n",
		Wide:  "    envoy.service.runtime.v3.Runtime: rejected, 1 of 1 behind",
		JSON:  `"type": "` + runtime + `"`,
	} {
		var b strings.Builder
		if err := write(&b, Options{Output: format}, Merge([]ack.Audit{a})); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s lacks %q:\n%s", format, want, b.String())
		}
	}
}

func TestAge(t *testing.T) {
	for _, tt := range []struct {
		ago  time.Duration
		want string
	}{
		{-time.Minute, "now"},
		{999 * time.Millisecond, "now"},
		{time.Second, "1s ago"},
		{59*time.Second + 900*time.Millisecond, "59s ago"},
		{time.Minute, "1m0s ago"},
		{time.Hour - time.Second, "59m59s ago"},
		{47*time.Hour + 59*time.Minute, "47h59m ago"},
		{48 * time.Hour, "2d ago"},
	} {
		if got := Age(noon, before(tt.ago)); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.ago, got, tt.want)
		}
	}
	if got := Age(noon, time.Time{}); got != "never" {
		t.Errorf("zero: %q", got)
	}
}

func TestShorten(t *testing.T) {
	if got := shorten("abcdefghij", 7); got != "abc…hij" {
		t.Error(got)
	}
	if got := shorten("äöü", 3); got != "äöü" {
		t.Error(got)
	}
}
