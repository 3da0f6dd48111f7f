package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The audit log is a file that need not exist, in a directory that must.
func TestAuditLog(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	log := filepath.Join(dir, "audit.jsonl")
	if err := os.WriteFile(file, []byte("audit: {log: "+log+", log-max-bytes: 1000}\nhistory: {limit: 7}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := LoadServer([]string{"--manifests", dir, "--config", file, "--audit-log-max-files", "2"}, none)
	if err != nil || c.AuditLog != log || c.AuditLogMaxBytes != 1000 || c.AuditLogMaxFiles != 2 || c.HistoryLimit != 7 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, _, err = LoadServer([]string{"--manifests", dir, "--audit-log", filepath.Join(dir, "none", "audit.jsonl")}, none); err == nil || !strings.Contains(err.Error(), "--audit-log: ") {
		t.Errorf("a directory that does not exist: %v", err)
	}
	if _, _, err = LoadServer([]string{"--manifests", dir, "--audit-log", dir}, none); err == nil || !strings.Contains(err.Error(), "is a directory, not a file") {
		t.Errorf("a directory: %v", err)
	}
}
