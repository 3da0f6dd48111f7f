package directory

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An edit that no event tells, and that leaves size and time as they were,
// shows after 30 s. The time is the test's own: nothing runs.
func TestEditWithoutTraceIsFound(t *testing.T) {
	dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	long := time.Now().Add(-time.Hour)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(target, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(target, long, long); err != nil {
			t.Fatal(err)
		}
	}
	write("a 1\n")
	if err := os.Symlink(target, filepath.Join(dir, "f.yaml")); err != nil {
		t.Fatal(err)
	}
	value := ""
	w := New(Config[word, string]{
		Dir: dir, What: "words", Parse: words, Synced: func() {},
		Deliver: func(items map[word]Item[word, string]) { value = items["a"].Value },
	})
	begin := time.Now()
	w.rereadAt = begin
	look := func(after time.Duration) string {
		t.Helper()
		w.reread(begin.Add(after))
		if err := w.list(begin.Add(after), after == 0); err != nil {
			t.Fatal(err)
		}
		return value
	}
	if got := look(0); got != "1" {
		t.Fatalf("at the start: %q", got)
	}
	write("a 2\n")
	if got := look(29 * time.Second); got != "1" {
		t.Fatalf("before its time: %q: the edit leaves a trace, and the test proves nothing", got)
	}
	if got := look(30 * time.Second); got != "2" {
		t.Errorf("after 30 s: %q", got)
	}
}
