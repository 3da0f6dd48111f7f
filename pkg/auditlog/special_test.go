package auditlog

import (
	"os"
	"path/filepath"
	"testing"
)

// TestNoRegularFile: a device, a pipe or what a link leads to outside is written
// to, and never renamed or removed: /dev/null and /dev/stdout belong to others.
func TestNoRegularFile(t *testing.T) {
	for _, maxFiles := range []int{1, 2} {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		if err := os.Symlink(os.DevNull, path); err != nil {
			t.Fatal(err)
		}
		l := New(Config{Path: path, MaxBytes: 20, MaxFiles: maxFiles})
		stop := running(t, l)
		for i := range 20 {
			l.note(i, "0123456789")
		}
		stop()
		info, err := os.Stat(path)
		if err != nil || info.Mode()&os.ModeDevice == 0 {
			t.Errorf("with %d files, the device is replaced: %v, %v", maxFiles, info, err)
		}
	}
}
