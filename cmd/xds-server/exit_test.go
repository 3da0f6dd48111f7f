package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/internal/program"
)

// TestExitCodes: a wrong command line or configuration is 2 with every command, a failure at work 1, and so is the verdict
// of --check-config. Commands that ask others have 1 for the answer no, and 2 where nobody could be asked.
func TestExitCodes(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	nowhere := filepath.Join(dir, "none", "file")
	broken, noCA, good := filepath.Join(dir, "broken"), filepath.Join(dir, "no-ca"), filepath.Join(dir, "good")
	write(t, broken, "node:\n  id: [\n")
	write(t, noCA, kubeconfig("certificate-authority: "+nowhere))
	write(t, good, kubeconfig("insecure-skip-tls-verify: true"))
	cases := []struct {
		code int
		args []string
	}{
		{0, []string{"--help"}},
		{0, []string{"serve", "--help"}},
		{0, []string{"serve", "--manifests", dir, "--check-config"}},
		{2, nil},
		{2, []string{"sreve"}},
		{2, []string{"--nonsense"}},
		{2, []string{"serve"}},
		{2, []string{"serve", "--manifests", dir, "stray"}},
		{2, []string{"serve", "--manifests", nowhere}},
		{2, []string{"serve", "--manifests", dir, "--audit-log", nowhere}},
		{2, []string{"serve", "--check-config", "--nonsense"}},
		{1, []string{"serve", "--manifests", nowhere, "--check-config"}},
		{0, []string{"serve", "--kubeconfig", good, "--check-config"}},
		{1, []string{"serve", "--kubeconfig", broken, "--check-config"}},
		{2, []string{"serve", "--kubeconfig", broken}},
		{1, []string{"serve", "--kubeconfig", noCA, "--check-config"}},
		{2, []string{"serve", "--kubeconfig", noCA}},
		{1, []string{"serve", "--manifests", dir, "--xds-address", taken.Addr().String()}},
		{2, []string{"bootstrap"}},
		{2, []string{"bootstrap", "envoy"}},
		{1, []string{"bootstrap", "envoy", "--node-id", "a", "--output", nowhere}},
		{2, []string{"inject"}},
		{2, []string{"inject", "-f", nowhere, "--memory", "much"}},
		{1, []string{"inject", "-f", nowhere}},
		{2, []string{"audit", "--server", "http://127.0.0.1:1"}},
		{2, []string{"explain"}},
		{2, []string{"drain"}},
		{2, []string{"check", "--kubeconfig", nowhere}},
	}
	for _, command := range []string{"serve", "audit", "explain", "drain", "bootstrap", "inject", "check"} {
		cases = append(cases, struct {
			code int
			args []string
		}{2, []string{command, "--nonsense"}})
	}
	for _, c := range cases {
		var stdout, stderr bytes.Buffer
		p := program.Process{Name: "xds-server", LookupEnv: func(string) (string, bool) { return "", false }, Stdout: &stdout, Stderr: &stderr}
		if code := run(t.Context(), p, c.args); code != c.code || (code != 0) != (stderr.Len() > 0) {
			t.Errorf("%q: exit code %d, want %d\n%s%s", c.args, code, c.code, &stdout, &stderr)
		}
		if at := slices.Index(c.args, "--kubeconfig"); at >= 0 && c.code != 0 && !strings.Contains(stderr.String(), c.args[at+1]) {
			t.Errorf("%q: the error does not name the file: %s", c.args, &stderr)
		}
	}
}

// kubeconfig is one with a line more on its cluster.
func kubeconfig(more string) string {
	return `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", ` + more + `}}]}`
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
