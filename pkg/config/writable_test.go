package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLogsAreTried: a log that cannot be written is found out before anything starts, and trying leaves nothing behind.
func TestLogsAreTried(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ path, want string }{
		{"", ""},
		{"-", ""},
		{os.DevNull, ""},
		{there, ""},
		{filepath.Join(dir, "new"), ""},
		{dir, dir + " is a directory, not a file"},
		{filepath.Join(dir, "none", "new"), filepath.Join(dir, "none") + ": no such file or directory"},
		{filepath.Join(there, "new"), there},
	}
	if os.Getuid() != 0 { // root may do what the modes forbid
		closed, locked := filepath.Join(dir, "closed"), filepath.Join(dir, "locked")
		if err := os.WriteFile(locked, nil, 0o400); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(closed, 0o500); err != nil { //nolint:gosec // a directory must be entered
			t.Fatal(err)
		}
		cases = append(cases, struct{ path, want string }{locked, locked + ": permission denied"},
			struct{ path, want string }{filepath.Join(closed, "new"), "no file can be made there: " + closed + ": permission denied"})
	} else if _, err := os.Stat("/proc/self"); err == nil { // where nobody can make files
		cases = append(cases, struct{ path, want string }{"/proc/new", "no file can be made there: /proc: "})
	}
	for _, c := range cases {
		_, result, err := LoadDataplane([]string{"--node-id", "a", "--access-log", c.path, "--check-config"}, none)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "--access-log: "+c.want)) || result.Action != Check {
			t.Errorf("%q: %v, want %q", c.path, err, c.want)
		}
	}
	if content, err := os.ReadFile(there); err != nil || string(content) != "old\n" {
		t.Errorf("the file that was there: %q, %v", content, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); name != "there" && name != "closed" && name != "locked" {
			t.Errorf("left behind: %s", name)
		}
	}
}
