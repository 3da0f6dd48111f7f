package main

import (
	"bytes"
	"net"
	"path/filepath"
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
	}
}
