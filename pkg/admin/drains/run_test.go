package drains

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/drain"
)

func serve(t *testing.T, answer func(r *http.Request) (int, any)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/drain" || r.Method != http.MethodGet {
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

var (
	done  = drain.Report{Drained: true, Target: "pod default/a", Instance: "x", Waits: []drain.Wait{}}
	still = drain.Report{Target: "pod default/a", Instance: "y", LeftOut: 7, Waits: []drain.Wait{{
		Reason: drain.Pending, Node: "n\x1b[31m", Cluster: "echo", Endpoint: "10.0.0.1:80", Since: time.Unix(100, 0), Detail: "sent 1s ago",
	}}}
)

func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		name           string
		code           int
		body           any
		want           int
		stdout, stderr string
	}{
		{"drained", 200, done, 0, "pod default/a is drained", ""},
		{"not drained", 504, still, 1, "pending  n [31m  echo  10.0.0.1:80  since 1970-01-01T00:01:40Z  (sent 1s ago)\n  and 7 more", ""},
		{"drained with the wrong code", 504, done, 2, "", "no report"},
		{"not drained with the wrong code", 200, still, 2, "", "no report"},
		{"a proxy's 504", 504, "<html>", 2, "", "no report"},
		{"something else", 200, "{}", 2, "", "no report"},
		{"refused", 400, `{"error": "what?"}`, 2, "", "400 Bad Request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := run(t, "--server", serve(t, always(tt.code, tt.body)), "--pod", "default/a", "--timeout", "0s")
			if code != tt.want || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("%d, want %d\n%s\n%s", code, tt.want, stdout, stderr)
			}
		})
	}
}

// TestReplicas: all have to say so, and all have to be asked.
func TestReplicas(t *testing.T) {
	good, bad := serve(t, always(200, done)), serve(t, always(504, still))
	const nobody = "http://127.0.0.254:1"
	for _, tt := range []struct {
		servers []string
		want    int
	}{{[]string{good, good}, 0}, {[]string{good, bad}, 1}, {[]string{good, nobody}, 2}, {[]string{bad, nobody}, 2}} {
		args := []string{"--pod", "default/a", "--timeout", "0s"}
		for _, s := range tt.servers {
			args = append(args, "--server", s)
		}
		if code, stdout, stderr := run(t, args...); code != tt.want {
			t.Errorf("%v: %d, want %d\n%s%s", tt.servers, code, tt.want, stdout, stderr)
		}
	}
}

// TestWaits: a server that fails at first is asked again, and so is one that says no.
func TestWaits(t *testing.T) {
	var asked atomic.Int32
	server := serve(t, func(r *http.Request) (int, any) {
		q := r.URL.Query()
		if wait, err := time.ParseDuration(q.Get("timeout")); err != nil || wait <= 0 || wait > roundTime || q.Get("endpoint") != "10.0.0.1:80" {
			t.Errorf("asked for %v", q)
		}
		switch asked.Add(1) {
		case 1:
			return 503, `{"error": "busy"}`
		case 2:
			return 504, still
		}
		return 200, done
	})
	if code, stdout, stderr := run(t, "--server", server, "--endpoint", "10.0.0.1:80", "--timeout", "1m"); code != 0 || asked.Load() != 3 {
		t.Errorf("%d after %d questions\n%s%s", code, asked.Load(), stdout, stderr)
	}
}

func TestOneNameForAll(t *testing.T) {
	server := serve(t, always(200, done))
	port := server[strings.LastIndex(server, ":"):]
	addresses := []string{"127.0.0.1"}
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		var out []netip.Addr
		for _, a := range addresses {
			out = append(out, netip.MustParseAddr(a))
		}
		if host != "servers.test" || len(out) == 0 {
			return nil, errors.New("no such host")
		}
		return out, nil
	}
	ask := func() int {
		var out, errs bytes.Buffer
		return Run(t.Context(), Options{Servers: []string{server, "http://servers.test" + port}, Namespace: "default", Pod: "a", Lookup: lookup}, &out, &errs)
	}
	addresses = []string{"127.0.0.1", "127.0.0.1"}
	if code := ask(); code != ExitDrained {
		t.Errorf("all there: %d", code)
	}
	addresses = []string{"127.0.0.1", "127.0.0.254"}
	if code := ask(); code != ExitUnknown {
		t.Errorf("one away: %d", code)
	}
	addresses = nil
	if code := ask(); code != ExitUnknown {
		t.Errorf("no such name: %d", code)
	}
}

func TestWrongCommandLines(t *testing.T) {
	for _, args := range []string{
		"", "--pod a", "--pod default/", "--pod a/b/c", "--endpoint echo:80", "--endpoint 10.0.0.1", "--pod default/a --endpoint 10.0.0.1:80",
		"--pod default/a --timeout -1s", "--pod default/a --timeout 1h", "--pod default/a --server ftp://x", "--pod default/a more", "--nonsense",
	} {
		if code, stdout, stderr := run(t, strings.Fields(args)...); code != ExitUnknown || stderr == "" {
			t.Errorf("%q: %d, %q, %q", args, code, stdout, stderr)
		}
	}
	if code, stdout, _ := run(t, "--help"); code != 0 || !strings.Contains(stdout, "Usage: xds-server drain") {
		t.Errorf("help: %d, %q", code, stdout)
	}
}
