package static

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmesh/freshmesh/internal/testpage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// recorder is a Sink that gives what it was given, one line each.
type recorder struct {
	all    chan string
	synced chan struct{}
}

func (r *recorder) Resources(all []Resource) {
	var lines []string
	for _, x := range all {
		lines = append(lines, fmt.Sprintf("%s %s %s:%d", x.Type.Short(), x.Name, x.Cause.Object, x.Line))
	}
	r.all <- strings.Join(lines, "\n")
}

func (r *recorder) Synced() { close(r.synced) }

// holds waits until the sink was given exactly these lines.
func (r *recorder) holds(t *testing.T, want ...string) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	last := "nothing"
	for {
		select {
		case last = <-r.all:
			if last == strings.Join(want, "\n") {
				return
			}
		case <-deadline.C:
			t.Fatalf("got %q, want %q", last, want)
		}
	}
}

func save(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// problems waits until there are exactly these.
func problems(t *testing.T, s *Source, want ...string) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		var got []string
		for _, p := range s.Status().Problems {
			got = append(got, p.String())
		}
		if strings.Join(got, "\n") == strings.Join(want, "\n") {
			return
		}
		select {
		case <-look.C:
		case <-deadline.C:
			t.Fatalf("problems %q, want %q", got, want)
		}
	}
}

func TestWatched(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, "a.yaml", response)
	s, sink := New(Config{Dir: dir}), &recorder{all: make(chan string, 100), synced: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, sink) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	<-sink.synced
	sink.holds(t, "cds other file a.yaml:10", "cds some_service file a.yaml:3")
	problems(t, s)

	// Of two with one name, the first by file holds.
	save(t, dir, "b.yaml", "'@type': "+cluster+"\nname: other\n---\n'@type': "+listener+"\nname: l\n")
	sink.holds(t, "cds other file a.yaml:10", "cds some_service file a.yaml:3", "lds l file b.yaml:4")
	problems(t, s, "cds other: defined again in b.yaml (line 1); the one in a.yaml holds")

	// An invalid file keeps what it gave before; the other one is read.
	save(t, dir, "a.yaml", "'@type': "+cluster+"\nname: other\ntype: NO_SUCH\n")
	problems(t, s, "cds other: defined again in b.yaml (line 1); the one in a.yaml holds",
		`file a.yaml: line 3: envoy.config.cluster.v3.Cluster: invalid value for enum field type: "NO_SUCH"`)

	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	sink.holds(t, "cds other file b.yaml:1", "lds l file b.yaml:4")
	problems(t, s)
}

func TestNoDirectory(t *testing.T) {
	err := New(Config{Dir: filepath.Join(t.TempDir(), "none")}).Run(t.Context(), &recorder{})
	if err == nil || !strings.Contains(err.Error(), "read static resources: ") {
		t.Errorf("Run: %v", err)
	}
}

// TestDocumentedExample: what docs/xds.md shows is what is read.
func TestDocumentedExample(t *testing.T) {
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(testpage.Read(t, "xds.md"))
	if example == nil {
		t.Fatal("no example")
	}
	if c := parse("a.yaml", []byte(example[1])); len(c.Items) != 2 || len(c.Findings) > 0 {
		t.Errorf("items %v, findings %v", c.Items, c.Findings)
	}
}
