package main

import (
	"bytes"
	"net"
	"path/filepath"
	"testing"

	"github.com/freshmesh/freshmesh/internal/program"
)

// TestExitCodes: a wrong command line or configuration is 2, a failure at work 1, and so is the verdict of --check-config.
func TestExitCodes(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	nowhere := filepath.Join(t.TempDir(), "none", "access.log")
	for _, c := range []struct {
		code int
		args []string
	}{
		{0, []string{"--help"}},
		{0, []string{"--version"}},
		{0, []string{"--print-config"}},
		{0, []string{"--node-id", "a", "--check-config"}},
		{2, nil},
		{2, []string{"--nonsense"}},
		{2, []string{"--node-id", "a", "stray"}},
		{2, []string{"--node-id", "a", "--drain-time", "soon"}},
		{2, []string{"--node-id", "a", "--config", nowhere}},
		{2, []string{"--node-id", "a", "--access-log", nowhere}},
		{2, []string{"--check-config", "--nonsense"}},
		{1, []string{"--check-config"}},
		{1, []string{"--node-id", "a", "--access-log", nowhere, "--check-config"}},
		{1, []string{"--node-id", "a", "--admin-address", taken.Addr().String(), "--outbound-address", "127.0.0.1:0", "--health-address", ""}},
		{0, []string{"redirect", "--help"}},
		{2, []string{"redirect", "--nonsense"}},
		{2, []string{"redirect", "--proxy-uid", "0"}},
	} {
		var stdout, stderr bytes.Buffer
		p := program.Process{Name: "dataplane", LookupEnv: func(string) (string, bool) { return "", false }, Stdout: &stdout, Stderr: &stderr}
		if code := run(t.Context(), p, c.args); code != c.code || (code != 0) != (stderr.Len() > 0) {
			t.Errorf("%q: exit code %d, want %d\n%s%s", c.args, code, c.code, &stdout, &stderr)
		}
	}
}
