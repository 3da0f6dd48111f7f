package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// tell gives the URL of a server that answers /explain.
func tell(t *testing.T, code int, body any) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/explain" || r.URL.Query().Get("node") != "n" || r.URL.Query().Get("cluster") != "c" {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(code)
		if text, ok := body.(string); ok {
			fmt.Fprint(w, text)
		} else if err := json.NewEncoder(w).Encode(body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

var when = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

func told(v history.Verdict, edit ...func(*history.Story)) history.Story {
	s := history.Story{
		Time: when, Node: "n", Cluster: "c", Verdict: v, Summary: "summary of " + string(v),
		Server: history.Server{Instance: "ABC", Generation: 7, LogAfter: 3, LogSince: when.Add(-time.Hour)},
	}
	if v != history.NodeUnknown {
		s.State = &history.NodeState{Client: "envoy 1.40.0", State: ack.Fresh, Streams: 1, ConnectedAt: when.Add(-time.Minute)}
	}
	if v == history.Disconnected {
		s.State.Streams, s.State.State = 0, ack.Disconnected
	}
	for _, e := range edit {
		e(&s)
	}
	return s
}

func TestExplainServers(t *testing.T) {
	up := func(v history.Verdict) string { return tell(t, 200, told(v)) }
	down := "http://127.0.0.1:1"
	for _, tt := range []struct {
		name    string
		servers []string
		want    int
		out     []string
		not     string
		stderr  string
	}{
		{"current", []string{up(history.Current)}, ExitTold, []string{"verdict   current", "summary of current"}, "", ""},
		{"behind", []string{up(history.Behind)}, ExitNotCurrent, []string{"summary of behind"}, "", ""},
		{"the replica that has it", []string{up(history.NodeUnknown), up(history.Current), up(history.Disconnected)}, ExitTold, []string{"summary of current"}, "summary of disconnected", ""},
		{"two have it", []string{up(history.Current), up(history.Rejected)}, ExitNotCurrent, []string{"summary of current", "summary of rejected"}, "", ""},
		{"one had it", []string{up(history.NodeUnknown), up(history.Disconnected)}, ExitNotCurrent, []string{"summary of disconnected"}, "node-unknown", ""},
		{"nobody has it", []string{up(history.NodeUnknown), up(history.NodeUnknown)}, ExitNotCurrent, []string{"summary of node-unknown"}, "", ""},
		{"one that is down may have it", []string{up(history.NodeUnknown), down}, ExitNotAsked, []string{"summary of node-unknown"}, "", down},
		{"one is down, another has it", []string{down, up(history.Current)}, ExitTold, []string{"summary of current"}, "", down},
		{"none answers", []string{down}, ExitNotAsked, nil, "", down},
		{"no such path", []string{tell(t, 404, `{"error": "no such path: /explain"}`)}, ExitNotAsked, nil, "", "no such path"},
		{"something else", []string{tell(t, 200, `{}`)}, ExitNotAsked, nil, "", "no story"},
		{"no JSON", []string{tell(t, 200, `<html>`)}, ExitNotAsked, nil, "", "no story"},
	} {
		args := []string{"--node", "n", "--cluster", "c"}
		for _, s := range tt.servers {
			args = append(args, "--server", s)
		}
		var out, errs bytes.Buffer
		code := ExplainMain(t.Context(), args, &out, &errs)
		if code != tt.want || !strings.Contains(errs.String(), tt.stderr) || tt.not != "" && strings.Contains(out.String(), tt.not) {
			t.Errorf("%s: %d, %s\n%s", tt.name, code, &errs, &out)
		}
		for _, want := range tt.out {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", tt.name, want, &out)
			}
		}
	}
}

func TestExplainCommandLine(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, ExitTold, "Usage: xds-server explain"},
		{[]string{"--cluster", "c"}, ExitNotAsked, "--node: missing"},
		{[]string{"--node", "n"}, ExitNotAsked, "--cluster: missing"},
		{[]string{"--node", "n", "--cluster", "c", "--endpoint", "10.0.0.1"}, ExitNotAsked, `--endpoint "10.0.0.1": want IP:PORT`},
		{[]string{"--node", "n", "--cluster", "c", "-o", "yaml"}, ExitNotAsked, `--output "yaml": one of table, json`},
		{[]string{"--node", "n", "--cluster", "c", "--server", "ftp://x"}, ExitNotAsked, "--server"},
		{[]string{"--node", "n", "--cluster", "c", "more"}, ExitNotAsked, `unexpected argument "more"`},
		{[]string{"--nod", "n"}, ExitNotAsked, "unknown flag"},
	} {
		var out, errs bytes.Buffer
		if code := ExplainMain(t.Context(), tt.args, &out, &errs); code != tt.code || !strings.Contains(out.String()+errs.String(), tt.want) {
			t.Errorf("%q: %d, %s%s", tt.args, code, &out, &errs)
		}
	}
}

// What a client says of itself cannot steer the terminal, and long stories are cut.
func TestStoryTable(t *testing.T) {
	s := told(history.Rejected, func(s *history.Story) {
		s.State.Client, s.Node, s.Endpoint, s.EndpointNow = "evil\x1b[31m\nclient", "n\x07", "10.0.0.1:80", history.Absent
		s.Earlier = 3
		refused := when.Add(-time.Second)
		for g := range 12 {
			s.Changes = append(s.Changes, history.Change{
				Generation: mesh.Generation(g), Type: "eds", What: history.Changed, Version: "v", Object: "file a.yaml", PublishedAt: when.Add(-2 * time.Second),
				Endpoints: make([]history.EndpointChange, 15), MoreEndpoints: 100,
				Sent: &history.Sent{At: when.Add(-2 * time.Second), Resources: 4, RefusedAt: &refused, Message: "bad\x1b[0m"},
			})
		}
		s.Changes[11].Sent, s.Changes[11].Note = nil, "not sent yet"
		s.Holds = []history.Hold{{Type: "eds", Stage: "refused", Message: "bad\r\nweight", StreamSince: when.Add(-time.Minute), EndpointHeld: history.Unknown, EndpointCurrent: history.Absent}}
	})
	text := stories([]storyAnswer{{story: s}}, false)
	for _, want := range []string{
		"5 changes before these (-o json shows more)", "and 105 more", "with 3 other resources; probably: their names were not kept",
		"not sent yet", "refused: bad weight", "nothing", "gone", "older changes are not kept", "endpoint  10.0.0.1:80, now absent",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, r := range text {
		if r < ' ' && r != '\n' {
			t.Fatalf("control character %q in\n%s", r, text)
		}
	}
	ambiguous := told(history.ClusterUnknown, func(s *history.Story) { s.Endpoint, s.EndpointNow = "10.0.0.1:80", "" })
	if text := stories([]storyAnswer{{story: ambiguous}}, false); !strings.Contains(text, "endpoint  10.0.0.1:80\n") {
		t.Errorf("more is told of the endpoint than is known:\n%s", text)
	}
}
