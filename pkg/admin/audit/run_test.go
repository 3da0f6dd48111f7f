package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin/replicas"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func node(id mesh.NodeID, s ack.State) ack.Node { return ack.Node{ID: id, State: s} }

// serve gives the URL of a server that answers with what answer gives.
func serve(t *testing.T, answer func(r *http.Request) (int, any)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/audit" || r.Method != http.MethodGet {
			t.Errorf("asked for %s %s", r.Method, r.URL)
		}
		code, body := answer(r)
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

func always(code int, body any) func(*http.Request) (int, any) {
	return func(*http.Request) (int, any) { return code, body }
}

func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestExitCodes(t *testing.T) {
	unsynced := of()
	unsynced.Server.Synced = false
	for _, tt := range []struct {
		name   string
		code   int
		body   any
		args   []string
		want   int
		stderr string
	}{
		{"fresh", 200, of(node("a", ack.Fresh), node("b", ack.Fresh)), nil, 0, ""},
		{"disconnected does not fail it", 200, of(node("a", ack.Fresh), node("b", ack.Disconnected)), nil, 0, ""},
		{"nobody is connected", 200, of(node("a", ack.Disconnected), node("b", ack.Disconnected)), nil, 1, ""},
		{"nobody is connected, allowed", 200, of(node("a", ack.Disconnected)), []string{"--allow-empty"}, 0, ""},
		{"pending", 200, of(node("a", ack.Fresh), node("b", ack.Pending)), nil, 1, ""},
		{"stale", 200, of(node("a", ack.Stale)), nil, 1, ""},
		{"rejected", 200, of(node("a", ack.Rejected)), nil, 1, ""},
		{"empty", 200, of(), nil, 1, ""},
		{"empty allowed", 200, of(), []string{"--allow-empty"}, 0, ""},
		{"stale is never allowed", 200, of(node("a", ack.Stale)), []string{"--allow-empty"}, 1, ""},
		{"not synced", 200, unsynced, []string{"--allow-empty"}, 1, ""},
		{"refused", 503, map[string]string{"error": "too early"}, nil, 2, "503 Service Unavailable: too early"},
		{"not JSON", 200, "<html>", nil, 2, "answer is no audit"},
		{"something else", 200, "{}", nil, 2, "it has no time"},
		{"unknown state", 200, of(node("a", "splendid")), nil, 2, `unknown state "splendid"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := serve(t, always(tt.code, tt.body))
			code, stdout, stderr := run(t, append(tt.args, "--server", server)...)
			if code != tt.want {
				t.Errorf("exit code %d, want %d; %s", code, tt.want, stderr)
			}
			if tt.stderr == "" && stderr != "" || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("stderr %q", stderr)
			}
			if tt.want == ExitUnknown && (!strings.Contains(stderr, server) || stdout != "") {
				t.Errorf("stdout %q, stderr %q", stdout, stderr)
			}
		})
	}
}

func TestUnreachableServerIsNamedAndTheOthersShown(t *testing.T) {
	up := serve(t, always(200, of(node("a", ack.Fresh))))
	down := httptest.NewServer(nil)
	down.Close()
	code, stdout, stderr := run(t, "--server", up, "--server", down.URL)
	if code != ExitUnknown || !strings.Contains(stderr, down.URL+": could not ask: ") || strings.Contains(stderr, up) {
		t.Errorf("%d, %s", code, stderr)
	}
	if !strings.HasPrefix(stdout, "1 node: 1 fresh\n") {
		t.Errorf("stdout %q", stdout)
	}
}

func TestNodeIsAskedFor(t *testing.T) {
	server := serve(t, func(r *http.Request) (int, any) {
		if got := r.URL.Query().Get("node"); got != "a&b" {
			t.Errorf("node %q", got)
		}
		return 200, of()
	})
	if code, _, _ := run(t, "--server", server, "--node", "a&b"); code != ExitNotFresh {
		t.Errorf("an unknown node gives %d", code)
	}
}

func TestWaitEndsWhenFresh(t *testing.T) {
	var asked atomic.Int32
	server := serve(t, func(*http.Request) (int, any) {
		switch asked.Add(1) {
		case 1:
			return 503, "starting"
		case 2:
			return 200, of(node("a", ack.Pending))
		}
		return 200, of(node("a", ack.Fresh))
	})
	code, stdout, stderr := run(t, "--server", server, "--wait", "1m", "-o", "json")
	var got Merged
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if code != ExitFresh || asked.Load() != 3 || got.Summary.Fresh != 1 || stderr != "" {
		t.Errorf("exit code %d after %d, %s %s", code, asked.Load(), stdout, stderr)
	}
}

func TestWaitEndsInTime(t *testing.T) {
	var asked atomic.Int32
	server := serve(t, func(*http.Request) (int, any) {
		asked.Add(1)
		return 200, of(node("a", ack.Stale))
	})
	start := time.Now()
	code, _, _ := run(t, "--server", server, "--wait", "250ms")
	if code != ExitNotFresh || asked.Load() < 2 || time.Since(start) < 250*time.Millisecond {
		t.Errorf("exit code %d after %d questions and %v", code, asked.Load(), time.Since(start))
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	server := serve(t, always(200, of(node("a", ack.Stale))))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if code := Run(ctx, Options{Servers: []string{server}, Wait: time.Hour}, &bytes.Buffer{}, &bytes.Buffer{}); code == ExitFresh {
		t.Errorf("exit code %d", code)
	}
}

func TestCommandLine(t *testing.T) {
	for _, tt := range []struct{ args, stderr string }{
		{"-o xml", `--output "xml": one of table, wide, json, yaml`},
		{"--wait -1s", "--wait must not be negative"},
		{"--wait soon", "invalid argument"},
		{"--server ftp://x", `--server "ftp://x": want http://HOST:PORT`},
		{"--server http://", "want http://HOST:PORT"},
		{"--server http://x?y=z", "want http://HOST:PORT"},
		{"--envoy-admin ftp://x", `--envoy-admin "ftp://x": want http://HOST:PORT`},
		{"extra", `unexpected argument "extra"`},
		{"--nod a", "unknown flag: --nod"},
	} {
		code, stdout, stderr := run(t, strings.Fields(tt.args)...)
		if code != ExitUnknown || !strings.Contains(stderr, tt.stderr) || strings.Count(stderr, "\n") != 1 || stdout != "" {
			t.Errorf("%s: %d, stdout %q, stderr %q", tt.args, code, stdout, stderr)
		}
	}
	o, err := Parse(nil, nil)
	if err != nil || len(o.Servers) != 1 || o.Servers[0] != replicas.Default || o.Output != Table {
		t.Errorf("default: %+v, %v", o, err)
	}
	o, err = Parse(strings.Fields("--server a:1 --server http://b:2/ --server http://a:1 --output yaml --allow-empty --wait 3s --node x --envoy-admin http://e:1 --envoy-admin f:2/"), nil)
	if err != nil || strings.Join(o.Servers, " ") != "http://a:1 http://b:2" || o.Output != YAML || !o.AllowEmpty || o.Wait != 3*time.Second || o.Node != "x" || strings.Join(o.EnvoyAdmins, " ") != "http://e:1 http://f:2" {
		t.Errorf("%+v, %v", o, err)
	}
	if code, stdout, _ := run(t, "--help"); code != 0 || !strings.Contains(stdout, "--allow-empty") {
		t.Errorf("help: %d %q", code, stdout)
	}
}
