package audit

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func recorded(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "envoyaudit", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// handle serves what f gives: nil is 404.
func handle(t *testing.T, f func(r *http.Request) []byte) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := f(r)
		if body == nil {
			http.Error(w, `{"error": "no such node"}`, http.StatusNotFound)
			return
		}
		if _, err := w.Write(body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// recordedEnvoy is one that was recorded.
func recordedEnvoy(t *testing.T, recording string) string {
	t.Helper()
	return handle(t, func(r *http.Request) []byte {
		switch r.URL.String() {
		case "/config_dump?include_eds":
			return recorded(t, recording+"/config_dump.json")
		case "/clusters?format=json":
			return recorded(t, recording+"/clusters.json")
		}
		t.Errorf("Envoy was asked for %s", r.URL)
		return nil
	})
}

// recordedServer knows one node, and from its n-th answer on what recording says; before that, what first says.
func recordedServer(t *testing.T, node mesh.NodeID, first, recording string, n int32) string {
	t.Helper()
	var asked atomic.Int32
	return handle(t, func(r *http.Request) []byte {
		q := r.URL.Query()
		switch {
		case r.URL.Path == "/audit":
			text, err := json.Marshal(of(ack.Node{ID: node, State: ack.Fresh}))
			if err != nil {
				t.Error(err)
			}
			return text
		case q.Get("node") != string(node):
			return nil
		case asked.Add(1) < n:
			return recorded(t, first+"/"+q.Get("type")+".json")
		}
		return recorded(t, recording+"/"+q.Get("type")+".json")
	})
}

func TestEnvoyAdmin(t *testing.T) {
	const id = "envoy-delta"
	down := httptest.NewServer(nil)
	down.Close()
	envoy := recordedEnvoy(t, "delta")
	good := recordedServer(t, id, "delta", "delta", 0)
	late := recordedServer(t, id, "delta-trouble", "delta", 5)
	other := recordedServer(t, "other", "delta", "delta", 0)
	for _, tt := range []struct {
		name           string
		servers        []string
		envoy          string
		args           string
		want           int
		stdout, stderr string
	}{
		{"in effect", []string{good}, envoy, "", 0, "node envoy-delta (envoy 1.40.0): all is in effect: 3 clusters, 7 endpoints, 1 listener, 1 route configuration\n", ""},
		{"a change on its way", []string{late}, envoy, "", 0, "all is in effect", ""},
		{"not in effect", []string{recordedServer(t, id, "", "delta-trouble", 0)}, envoy, "", 1, "\n  eds mixed: endpoint 127.0.0.9:1: extra", ""},
		{"the second server has its stream", []string{other, good}, envoy, "", 0, "all is in effect", ""},
		{"nobody has its stream", []string{other}, envoy, "", 2, "1 node: 1 fresh", `no stream of node "envoy-delta" at http://`},
		{"under another name", []string{other}, envoy, "--node other", 0, "node other (envoy 1.40.0): all is in effect", ""},
		{"Envoy is away", []string{good}, down.URL, "", 2, "1 node: 1 fresh", "envoy " + down.URL + ": could not ask"},
		{"no Envoy", []string{good}, good, "", 2, "1 node: 1 fresh", "answered 404"},
		{"no control plane", []string{down.URL}, envoy, "", 2, "", "could not ask"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append(strings.Fields(tt.args), "--envoy-admin", tt.envoy)
			for _, s := range tt.servers {
				args = append(args, "--server", s)
			}
			code, stdout, stderr := run(t, args...)
			if code != tt.want || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) || (tt.stderr == "") != (stderr == "") {
				t.Errorf("exit code %d, want %d\n%s%s", code, tt.want, stdout, stderr)
			}
			if code == ExitUnknown || tt.args != "" {
				return
			}
			_, stdout, _ = run(t, append(args, "-o", "json")...)
			var m Merged
			if err := json.Unmarshal([]byte(stdout), &m); err != nil {
				t.Fatal(err)
			}
			if len(m.Envoys) != 1 || m.Envoys[0].InEffect != (code == ExitFresh) || (len(m.Envoys[0].Differences) == 0) != (code == ExitFresh) {
				t.Errorf("%s", stdout)
			}
			for _, n := range m.Nodes {
				if want := code == ExitFresh && n.ID == id; n.Active != want {
					t.Errorf("node %s: active %v", n.ID, n.Active)
				}
			}
		})
	}
}
