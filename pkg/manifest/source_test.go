package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/directory"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestSavedByRename(t *testing.T) {
	dir := t.TempDir()
	saveFile(t, dir, "a.yaml", service("a", 80)+"---\n"+endpoints("a-1", "a", "127.0.0.1"))
	saveFile(t, dir, ".hidden.yaml", service("hidden", 80))
	saveFile(t, dir, "README.md", "not a manifest")
	must(t, os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o700))
	saveFile(t, filepath.Join(dir, "sub.yaml"), "b.yaml", service("below", 80))
	r := start(t, dir)
	r.holds("EndpointSlice default/a-1 [127.0.0.1]", "Service default/a :80")
	if got := r.sink.entries(); got[len(got)-1] != "synced" {
		t.Errorf("sink heard %q, want the objects before synced", got)
	}
	if got := r.sink.objects[mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: "a"}].Metadata().Origin; got != "a.yaml" {
		t.Errorf("origin %q, want a.yaml", got)
	}

	saveFile(t, dir, "a.yaml", service("a", 80)+"---\n"+endpoints("a-1", "a", "127.0.0.2"))
	r.holds("EndpointSlice default/a-1 [127.0.0.2]", "Service default/a :80")
	if n := count(r.sink.entries(), "put Service default/a"); n != 1 {
		t.Errorf("the service was put %d times, want 1: it did not change", n)
	}

	must(t, os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "z.yml")))
	r.until("origin z.yml", func() bool {
		r.sink.mu.Lock()
		defer r.sink.mu.Unlock()
		return r.sink.objects[mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: "a"}].Metadata().Origin == "z.yml"
	})
	if slices.ContainsFunc(r.sink.entries(), func(e string) bool { return strings.HasPrefix(e, "delete") }) {
		t.Errorf("renaming a file deleted something: %q", r.sink.entries())
	}
	r.complains()

	must(t, os.Remove(filepath.Join(dir, "z.yml")))
	r.holds("")
}

func count(all []string, entry string) (n int) {
	for _, e := range all {
		if e == entry {
			n++
		}
	}
	return n
}

// An edit must show fast; the bound is generous only for a busy machine.
func TestEditShowsSoon(t *testing.T) {
	dir := t.TempDir()
	saveFile(t, dir, "a.yaml", service("a", 80))
	r := start(t, dir)
	fastest := time.Hour
	for port := 81; port < 86; port++ {
		before := time.Now()
		saveFile(t, dir, "a.yaml", service("a", port))
		r.holds("Service default/a :" + string([]byte{'8', byte('0' + port - 80)}))
		fastest = min(fastest, time.Since(before))
	}
	if fastest > 200*time.Millisecond {
		t.Errorf("the fastest of 5 edits showed after %v, want at most 200ms", fastest)
	}
}

// Rewritten in place: truncated, and then written piece by piece. Nothing of
// the states between may show.
func TestSavedInPlace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	text := func(port int, last string) string {
		return service("a", port) + "---\n" + endpoints("a-1", "a", "127.0.0.1") + "- addresses:\n  - " + last + "\n"
	}
	must(t, os.WriteFile(path, []byte(text(80, "127.0.0.12")), 0o600))
	r := start(t, dir)
	r.holds("EndpointSlice default/a-1 [127.0.0.1] [127.0.0.12]", "Service default/a :80")
	for port := 81; ; port++ {
		before := len(r.sink.entries())
		next := text(port, "127.0.0.13")
		longest := writeSlowly(t, path, next[:100], next[100:len(next)-2], next[len(next)-2:])
		r.holds("EndpointSlice default/a-1 [127.0.0.1] [127.0.0.13]", fmt.Sprintf("Service default/a :%d", port))
		r.complains()
		heard := r.sink.entries()[before:]
		if longest > 75*time.Millisecond {
			t.Logf("the writer itself was held up for %v: once more", longest)
			must(t, os.WriteFile(path, []byte(text(port, "127.0.0.12")), 0o600))
			r.holds("EndpointSlice default/a-1 [127.0.0.1] [127.0.0.12]", fmt.Sprintf("Service default/a :%d", port))
			continue
		}
		want := []string{"put EndpointSlice default/a-1", "put Service default/a"}
		if !slices.Equal(heard, want) {
			t.Errorf("sink heard %q, want %q", heard, want)
		}
		return
	}
}

// writeSlowly rewrites a file in place, with pauses longer than the quiet time
// and shorter than the settle time (see package directory). It gives the longest time between two steps.
func writeSlowly(t *testing.T, path string, pieces ...string) (longest time.Duration) {
	t.Helper()
	last := time.Now()
	step := func() {
		longest = max(longest, time.Since(last))
		last = time.Now()
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0o600)
	must(t, err)
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for _, piece := range pieces {
		<-pause.C
		step()
		_, err := f.WriteString(piece)
		must(t, err)
		step()
	}
	must(t, f.Close())
	return longest
}

// As the kubelet updates a mounted ConfigMap: files lead through ..data, which is replaced by rename.
func TestSymlinkSwap(t *testing.T) {
	dir := t.TempDir()
	generation := func(name, text string) {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name, "a.yaml"), []byte(text), 0o600))
		must(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	generation("..2026_01", service("a", 80))
	must(t, os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")))
	r := start(t, dir)
	r.holds("Service default/a :80")
	generation("..2026_02", service("a", 81))
	must(t, os.RemoveAll(filepath.Join(dir, "..2026_01")))
	r.holds("Service default/a :81")
	r.complains()
}

// No event tells of an edit behind a symlink; the listing finds it.
func TestEditBehindSymlink(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	saveFile(t, elsewhere, "real", service("a", 80))
	must(t, os.Symlink(filepath.Join(elsewhere, "real"), filepath.Join(dir, "a.yaml")))
	r := start(t, dir)
	r.holds("Service default/a :80")
	saveFile(t, elsewhere, "real", service("a", 81))
	r.holds("Service default/a :81")
	must(t, os.Remove(filepath.Join(elsewhere, "real")))
	r.complains("file a.yaml: no such file or directory")
	r.holds("Service default/a :81")
}

func TestInvalidKeepsLastGood(t *testing.T) {
	dir := t.TempDir()
	saveFile(t, dir, "a.yaml", service("a", 80)+"---\n"+service("b", 80))
	r := start(t, dir)
	r.holds("Service default/a :80", "Service default/b :80")

	r.save("a.yaml", service("a", 81)+"---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {b\n")
	r.complains("file a.yaml: line ")
	r.save("c.yaml", service("c", 80))
	r.holds("Service default/a :80", "Service default/b :80", "Service default/c :80")

	// Too large, without permission, not decodable: all the same.
	r.save("a.yaml", "#"+strings.Repeat("x", 1<<16))
	r.complains("file a.yaml: larger than 65536 bytes")
	r.save("a.yaml", "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  ports:\n  - port: eighty\n")
	r.complains("file a.yaml: line 1: Service: json: cannot unmarshal string")
	r.holds("Service default/a :80", "Service default/b :80", "Service default/c :80")

	r.save("a.yaml", service("a", 82))
	r.holds("Service default/a :82", "Service default/c :80")
	r.complains()

	r.save("a.yaml", "{")
	r.complains("file a.yaml: line ")
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	r.holds("Service default/c :80")
	r.complains()
}

func TestInvalidAtStartGivesGoodDocuments(t *testing.T) {
	dir := t.TempDir()
	saveFile(t, dir, "a.yaml", service("a", 80)+"---\n{\n---\n"+service("c", 80))
	r := start(t, dir)
	r.holds("Service default/a :80", "Service default/c :80")
	r.complains("file a.yaml: line ")
}

func TestDuplicate(t *testing.T) {
	dir := t.TempDir()
	saveFile(t, dir, "b.yaml", service("a", 82))
	r := start(t, dir)
	r.holds("Service default/a :82")
	r.save("a.yaml", service("a", 81)+"---\n"+service("a", 83))
	r.holds("Service default/a :81")
	r.complains(
		"Service default/a: defined again in a.yaml (line 9); the one in a.yaml holds",
		"Service default/a: defined again in b.yaml (line 1); the one in a.yaml holds")
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	r.holds("Service default/a :82")
	r.complains()
}

func TestDirectoryRemovedAndRecreated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	must(t, os.Mkdir(dir, 0o700))
	saveFile(t, dir, "a.yaml", service("a", 80))
	r := start(t, dir)
	r.holds("Service default/a :80")

	must(t, os.RemoveAll(dir))
	r.until("disconnection", func() bool { return !r.source.Status().Connected })
	status := r.source.Status()
	if !status.Synced || !strings.Contains(status.Reason, "no such file or directory") {
		t.Errorf("status %+v, want synced, with the reason", status)
	}
	r.holds("Service default/a :80")
	if _, err := r.source.Read(t.Context(), mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: "a"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read without the directory: %v, want fs.ErrNotExist", err)
	}

	must(t, os.Mkdir(dir, 0o700))
	saveFile(t, dir, "a.yaml", service("a", 81))
	r.holds("Service default/a :81")
	r.until("connection", func() bool { return r.source.Status().Connected && r.source.Status().Reason == "" })
	// Events come from the new directory, too.
	saveFile(t, dir, "b.yaml", service("b", 81))
	r.holds("Service default/a :81", "Service default/b :81")
}

// Another directory takes the name, as with a symlink to releases.
func TestDirectorySwapped(t *testing.T) {
	parent := t.TempDir()
	one, two, current := filepath.Join(parent, "1"), filepath.Join(parent, "2"), filepath.Join(parent, "current")
	must(t, os.Mkdir(one, 0o700))
	must(t, os.Mkdir(two, 0o700))
	saveFile(t, one, "a.yaml", service("a", 81))
	saveFile(t, two, "a.yaml", service("a", 82))
	must(t, os.Symlink(one, current))
	r := start(t, current)
	r.holds("Service default/a :81")
	must(t, os.Symlink(two, current+".new"))
	must(t, os.Rename(current+".new", current))
	r.holds("Service default/a :82")
	saveFile(t, two, "a.yaml", service("a", 83))
	r.holds("Service default/a :83")
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	saveFile(t, dir, "a.yaml", service("a", 80)+"---\n"+endpoints("a-1", "a", "127.0.0.1"))
	saveFile(t, dir, "b.yaml", service("b", 80)+"---\n"+endpoints("b-1", "b", "127.0.0.1"))
	r := start(t, dir)
	key := mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: "a"}
	read := func() (lines []string) {
		t.Helper()
		objects, err := r.source.Read(t.Context(), key)
		must(t, err)
		for _, o := range objects {
			lines = append(lines, show(o))
		}
		return lines
	}
	if got, want := read(), []string{"EndpointSlice default/a-1 [127.0.0.1]", "Service default/a :80"}; !slices.Equal(got, want) {
		t.Errorf("Read gave %q, want %q", got, want)
	}
	saveFile(t, dir, "a.yaml", service("a", 80)+"---\n"+endpoints("a-1", "a", "127.0.0.2"))
	if got, want := read(), []string{"EndpointSlice default/a-1 [127.0.0.2]", "Service default/a :80"}; !slices.Equal(got, want) {
		t.Errorf("Read at once after a save gave %q, want %q", got, want)
	}
	key.Name = "none"
	if got := read(); len(got) != 0 {
		t.Errorf("Read of an unknown service gave %q, want nothing", got)
	}
}

func TestReadDeadline(t *testing.T) {
	s := New(Config{Dir: t.TempDir()})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Read(ctx, mesh.Key{Name: "a"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Read before Run: %v, want the deadline", err)
	}
}

func TestRunWithoutDirectory(t *testing.T) {
	s := New(Config{Dir: filepath.Join(t.TempDir(), "none")})
	if status := s.Status(); status.Synced || status.Connected || status.Reason == "" {
		t.Errorf("status before Run %+v, want neither synced nor connected, with a reason", status)
	}
	if err := s.Run(t.Context(), newRecorder()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Run: %v, want fs.ErrNotExist", err)
	}
	if _, err := s.Read(t.Context(), mesh.Key{Name: "a"}); !errors.Is(err, directory.ErrStopped) {
		t.Errorf("Read after Run: %v, want directory.ErrStopped", err)
	}
}
