package directory

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// word is a key.
type word string

func (w word) String() string { return "word " + string(w) }

// words parses lines "KEY VALUE"; a line "!" is a fatal finding, "?" a warning.
func words(_ string, data []byte) Content[word, string] {
	var c Content[word, string]
	var f Findings
	line := 0
	for text := range strings.Lines(string(data)) {
		line++
		key, value, ok := strings.Cut(strings.TrimSpace(text), " ")
		switch {
		case key == "!":
			f.Fatal(line, "bad")
		case key == "?":
			f.Warn(line, "odd")
		case ok:
			c.Items = append(c.Items, Item[word, string]{Key: word(key), Value: value, Line: line})
		}
	}
	c.Findings = f.All
	return c
}

// rig runs a Watcher over a fresh directory. Its fields but dir and watcher are
// owned by Run, and read through Do.
type rig struct {
	*testing.T
	dir     string
	watcher *Watcher[word, string]
	held    []string
	synced  bool
}

func start(t *testing.T, files map[string]string) *rig {
	t.Helper()
	r := &rig{T: t, dir: t.TempDir()}
	for name, text := range files {
		r.save(name, text)
	}
	r.watcher = New(Config[word, string]{
		Dir: r.dir, What: "words", MaxFileBytes: 64, Parse: words,
		Deliver: func(items map[word]Item[word, string]) {
			r.held = nil
			for _, key := range slices.Sorted(maps.Keys(items)) {
				r.held = append(r.held, string(key)+"="+items[key].Value+" "+items[key].File)
			}
		},
		Synced: func() { r.synced = true },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.watcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := r.watcher.Do(context.Background(), func() {}); !errors.Is(err, ErrStopped) {
			t.Errorf("Do after the end: %v", err)
		}
	})
	return r
}

func (r *rig) save(name, text string) {
	r.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.Fatal(err)
	}
}

// holds waits for items and problems.
func (r *rig) holds(items string, problems ...string) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		var held, got []string
		if err := r.watcher.Do(ctx, func() { held = slices.Clone(r.held) }); err != nil {
			r.Fatalf("Do: %v", err)
		}
		for _, p := range r.watcher.Status().Problems {
			got = append(got, p.String())
		}
		if strings.Join(held, ", ") == items && slices.Equal(got, problems) {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			r.Fatalf("held %q, problems %q; want %q, %q", held, got, items, problems)
		}
	}
}

func TestFilesTogether(t *testing.T) {
	r := start(t, map[string]string{"a.yaml": "x 1\ny 1\n", "b.json": "y 2\nz 2\n?\n", ".hidden.yaml": "h 1\n", "c.txt": "t 1\n"})
	r.holds("x=1 a.yaml, y=1 a.yaml, z=2 b.json", "file b.json: line 3: odd", "word y: defined again in b.json (line 1); the one in a.yaml holds")
	if err := r.watcher.Do(t.Context(), func() {
		if !r.synced {
			t.Error("delivered and not synced")
		}
	}); err != nil {
		t.Fatal(err)
	}
	r.save("a.yaml", "x 3\n")
	r.holds("x=3 a.yaml, y=2 b.json, z=2 b.json", "file b.json: line 3: odd")
}

func TestInvalidKeepsWhatItGave(t *testing.T) {
	r := start(t, map[string]string{"a.yaml": "x 1\n", "b.yaml": "y 1\n!\n"})
	r.holds("x=1 a.yaml, y=1 b.yaml", "file b.yaml: line 2: bad")
	r.save("a.yaml", "x 2\n!\n")
	r.holds("x=1 a.yaml, y=1 b.yaml", "file a.yaml: line 2: bad", "file b.yaml: line 2: bad")
	r.save("a.yaml", strings.Repeat("long ", 20)+"\n")
	r.holds("x=1 a.yaml, y=1 b.yaml", "file a.yaml: larger than 64 bytes", "file b.yaml: line 2: bad")
	r.save("a.yaml", "x 3\n")
	r.save("b.yaml", "y 3\n")
	r.holds("x=3 a.yaml, y=3 b.yaml")
}

// TestLostDirectory: while it is away everything stays, and Do says why.
func TestLostDirectory(t *testing.T) {
	r := start(t, map[string]string{"a.yaml": "x 1\n"})
	r.holds("x=1 a.yaml")
	if err := os.Rename(r.dir, r.dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := r.watcher.Do(t.Context(), func() { t.Error("called without a listing") }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Do: %v", err)
	}
	if s := r.watcher.Status(); s.Connected || !s.Synced || !strings.Contains(s.Reason, "cannot list") {
		t.Errorf("status %+v", s)
	}
	if err := os.Rename(r.dir+".away", r.dir); err != nil {
		t.Fatal(err)
	}
	r.holds("x=1 a.yaml")
}

func TestFindingsAreBounded(t *testing.T) {
	var f Findings
	for line := range 80 {
		f.Warn(line+1, "odd")
	}
	f.Fatal(99, "bad") //nolint:revive // it returns: it is no testing.T
	if len(f.All) != maxFindings {
		t.Fatalf("%d findings", len(f.All))
	}
	if diff := cmp.Diff(Finding{Line: 50, Reason: "and 32 more", Fatal: true}, f.All[maxFindings-1]); diff != "" {
		t.Errorf("the last one (-want +got):\n%s", diff)
	}
}
