package auditlog

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/freshmesh/freshmesh/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is what these tests record.
type line struct {
	N    int    `json:"n"`
	Text string `json:"text,omitempty"`
	// Of a Dropped line:
	Event  string `json:"event,omitempty"`
	Lines  int    `json:"lines,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// running runs a Log until stop is called or the test ends.
func running(t *testing.T, l *Log) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.Run(ctx) })
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

func (l *Log) note(n int, text string) { l.Record(func() any { return line{N: n, Text: text} }) }

// read gives the lines of files, in order; a half line fails the test.
func read(t *testing.T, paths ...string) []line {
	t.Helper()
	var out []line
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(text)) {
			var one line
			if err := json.Unmarshal([]byte(l), &one); err != nil || !strings.HasSuffix(l, "\n") {
				t.Fatalf("%s: %q: %v", path, l, err)
			}
			out = append(out, one)
		}
	}
	return out
}

// log is a logger and what it logged.
type log struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func (l *log) logger() hclog.Logger { return hclog.New(&hclog.LoggerOptions{Output: l}) }

// Everything is in the files, in order, and they are as many and as long as they may.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := New(Config{Path: path, MaxBytes: 1000, MaxFiles: 3})
	stop := running(t, l)
	const n = 200
	for i := range n {
		l.note(i, strings.Repeat("x", i%30))
	}
	stop()
	names, err := filepath.Glob(path + "*")
	if err != nil || len(names) != 3 {
		t.Fatalf("files: %v, %v", names, err)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Size() > 1000 {
			t.Errorf("%s: %d bytes, %v", name, info.Size(), err)
		}
	}
	got := read(t, path+".2", path+".1", path)
	for i, one := range got {
		if want := n - len(got) + i; one.N != want {
			t.Fatalf("line %d is %d, want %d", i, one.N, want)
		}
	}
	if len(got) < 30 {
		t.Errorf("only %d lines are left", len(got))
	}
}

func TestLongLineAndOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := New(Config{Path: path, MaxBytes: 100, MaxFiles: 1})
	stop := running(t, l)
	l.note(1, "")
	l.note(2, strings.Repeat("x", 500))
	l.note(3, "")
	stop()
	if got := read(t, path); len(got) != 1 || got[0].N != 3 {
		t.Errorf("got %+v", got)
	}
}

// What was written before goes on, and a half line that a crash left is ended.
func TestGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, []byte("{\"n\":1}\n{\"n\":"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := New(Config{Path: path})
	stop := running(t, l)
	l.note(2, "")
	stop()
	text, err := os.ReadFile(path)
	if err != nil || string(text) != "{\"n\":1}\n{\"n\":\n{\"n\":2}\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// Nobody waits: what does not fit is counted, and said in the log.
func TestFullQueue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := New(Config{Path: path, Queue: 3})
	for i := range 10 { // nobody takes from the queue yet
		l.note(i, "")
	}
	running(t, l)()
	got := read(t, path)
	if len(got) != 4 || got[3].Event != "dropped" || got[3].Lines != 7 {
		t.Errorf("got %+v", got)
	}
	if n := testutil.ToFloat64(l.full); n != 7 {
		t.Errorf("counted %v", n)
	}
}

// A full disk is warned of once, and what was lost meanwhile is told once it heals.
func TestFullDiskHeals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Fatal(err)
	}
	var logged log
	l := New(Config{Path: path, Logger: logged.logger()})
	stop := running(t, l)
	l.note(0, "")
	testwait.Until(t, "a failure is counted", func() bool { return testutil.ToFloat64(l.failed) == 1 })
	for i := 1; i < 5; i++ {
		l.note(i, "")
	}
	testwait.Until(t, "each failure is counted", func() bool { return testutil.ToFloat64(l.failed) == 5 })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	lost := 5
	testwait.Until(t, "it is written again", func() bool { // it is tried again every second
		l.note(lost, "")
		lost++
		return testutil.ToFloat64(l.written) > 0
	})
	stop()
	got := read(t, path)
	if got[0].Event != "dropped" || !strings.Contains(got[0].Reason, "no space left") || got[0].Lines != got[1].N {
		t.Errorf("got %+v", got[:2])
	}
	if n := int(testutil.ToFloat64(l.failed)); n != got[0].Lines {
		t.Errorf("counted %d lost, told %d", n, got[0].Lines)
	}
	if w := logged.count("[WARN]"); w != 1 || logged.count("written again") != 1 {
		t.Errorf("warned %d times: %s", w, &logged.buf)
	}
}

// A directory that comes later, and a file that somebody moves away.
func TestPathComesAndGoes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	path := filepath.Join(dir, "audit.jsonl")
	l := New(Config{Path: path})
	stop := running(t, l)
	l.note(0, "")
	testwait.Until(t, "a failure is counted", func() bool { return testutil.ToFloat64(l.failed) == 1 })
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the file is made anew", func() bool { l.note(1, ""); return exists(path) })
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the file is made anew once more", func() bool { l.note(2, ""); return exists(path) })
	stop()
	read(t, path+".moved", path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
