package audit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// replica is a server as the command sees it.
type replica struct {
	status ack.ServerStatus
	// versions is the body of GET /versions, without its time.
	versions []map[string]any
	asked    int
}

func (r *replica) start(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var body any
		switch q.URL.Path {
		case "/audit":
			body = ack.Audit{Server: r.status, Time: time.Now(), Nodes: []ack.Node{node("n-"+mesh.NodeID(r.status.Instance), ack.Fresh)}}
		case "/versions":
			r.asked++
			body = map[string]any{"type": q.URL.Query().Get("type"), "time": time.Now(), "resources": r.versions}
		}
		if err := json.NewEncoder(w).Encode(body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func statusOf(instance, build, digest string) ack.ServerStatus {
	return ack.ServerStatus{
		Instance: instance, Build: build, Synced: true, AckTimeoutSeconds: 5,
		Digests: []ack.Digest{{Type: "eds", Resources: 1, Version: mesh.Version(digest)}},
	}
}

// form is one line of /versions; past are "VERSION", each replaced so many seconds ago.
func form(version string, changed time.Duration, past ...string) []map[string]any {
	line := map[string]any{"name": "echo", "version": version, "changedAt": time.Now().Add(-changed)}
	var all []map[string]any
	for _, p := range past {
		all = append(all, map[string]any{"version": p, "until": time.Now().Add(-changed)})
	}
	line["past"] = all
	return []map[string]any{line}
}

func TestReplicasDisagree(t *testing.T) {
	for _, tt := range []struct {
		name     string
		one, two replica
		want     int
		stdout   []string
		asked    bool
	}{
		{"the same", replica{status: statusOf("one", "b1", "x")}, replica{status: statusOf("two", "b1", "x")}, 0, nil, false},
		{"other builds", replica{status: statusOf("one", "b1", "x")}, replica{status: statusOf("two", "b2", "y")}, 0, nil, false},
		{
			"one does not follow",
			replica{statusOf("one", "b1", "x"), form("v1", time.Hour), 0},
			replica{statusOf("two", "b1", "y"), form("v2", 12*time.Second, "v1"), 0},
			1,
			[]string{"the servers disagree about 1 resource", "stale: eds echo: one holds v1, two holds v2; since 12s ago, one is behind"},
			true,
		},
		{
			"it may follow yet",
			replica{statusOf("one", "b1", "x"), form("v1", time.Hour), 0},
			replica{statusOf("two", "b1", "y"), form("v2", 3*time.Second, "v1"), 0},
			1,
			[]string{"pending: eds echo"},
			true,
		},
		{
			"on its way", // two changed between the questions
			replica{statusOf("one", "b1", "x"), form("v1", time.Hour), 0},
			replica{statusOf("two", "b1", "y"), form("v2", 100*time.Millisecond, "v1"), 0},
			0, nil, true,
		},
		{
			"the same by now",
			replica{statusOf("one", "b1", "x"), form("v2", time.Second), 0},
			replica{statusOf("two", "b1", "y"), form("v2", time.Hour), 0},
			0, nil, true,
		},
		{
			"removed on one only",
			replica{statusOf("one", "b1", "x"), form("", 40*time.Second, "v1"), 0},
			replica{statusOf("two", "b1", "y"), form("v1", time.Hour), 0},
			1,
			[]string{"one holds nothing, two holds v1; since 40s ago, two is behind"},
			true,
		},
		{
			"nobody remembers",
			replica{statusOf("one", "b1", "x"), form("v1", time.Hour), 0},
			replica{statusOf("two", "b1", "y"), form("v2", time.Minute), 0},
			1,
			[]string{"stale: eds echo: one holds v1, two holds v2; since 1m0s ago\n"},
			true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := run(t, "--server", tt.one.start(t), "--server", tt.two.start(t))
			if code != tt.want || stderr != "" {
				t.Errorf("exit code %d, want %d; stderr %q\n%s", code, tt.want, stderr, stdout)
			}
			for _, want := range tt.stdout {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q in\n%s", want, stdout)
				}
			}
			if tt.asked != (tt.one.asked > 0) {
				t.Errorf("asked for single versions %d times", tt.one.asked)
			}
		})
	}
}

// TestOneNameForAll: every address of a name is asked, and a server that is asked by two of them counts once.
func TestOneNameForAll(t *testing.T) {
	r := replica{status: statusOf("one", "b1", "x")}
	port := r.start(t)[len("http://127.0.0.1:"):]
	addresses := []string{"127.0.0.1", "127.0.0.1"}
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		if host != "servers.test" {
			return nil, errors.New("no such host")
		}
		var out []netip.Addr
		for _, a := range addresses {
			out = append(out, netip.MustParseAddr(a))
		}
		return out, nil
	}
	ask := func(name string) (int, string, string) {
		var out, errs strings.Builder
		code := Run(t.Context(), Options{Servers: []string{"http://" + name + ":" + port}, Lookup: lookup}, &out, &errs)
		return code, out.String(), errs.String()
	}
	if code, stdout, stderr := ask("servers.test"); code != ExitFresh || strings.Count(stdout, "server one") != 1 {
		t.Errorf("twice the same: %d\n%s%s", code, stdout, stderr)
	}
	addresses = []string{"127.0.0.1", "127.0.0.254"} // nobody there
	if code, stdout, stderr := ask("servers.test"); code != ExitUnknown || !strings.Contains(stderr, "http://127.0.0.254:"+port) || !strings.Contains(stdout, "server one") {
		t.Errorf("one away: %d\n%s%s", code, stdout, stderr)
	}
	if code, _, stderr := ask("nowhere.test"); code != ExitUnknown || !strings.Contains(stderr, "no such host") {
		t.Errorf("no such name: %d %s", code, stderr)
	}
}
