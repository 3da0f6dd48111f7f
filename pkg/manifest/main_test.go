package manifest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests.
const patience = 10 * time.Second

// recorder is a mesh.Sink that remembers.
type recorder struct {
	changed chan struct{}

	mu      sync.Mutex // guards all below
	objects map[mesh.Key]mesh.Object
	log     []string
	synced  bool
}

func newRecorder() *recorder {
	return &recorder{changed: make(chan struct{}, 1), objects: map[mesh.Key]mesh.Object{}}
}

func (r *recorder) note(entry string, change func()) {
	r.mu.Lock()
	change()
	r.log = append(r.log, entry)
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *recorder) Put(o mesh.Object) {
	key := o.Metadata().Key
	r.note("put "+key.String(), func() { r.objects[key] = o })
}

func (r *recorder) Delete(m mesh.Meta) {
	r.note("delete "+m.String(), func() { delete(r.objects, m.Key) })
}

func (r *recorder) Synced() { r.note("synced", func() { r.synced = true }) }

// view is what the sink holds: "Service default/a: 80" or the addresses of a slice.
func (r *recorder) view() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, key := range slices.SortedFunc(maps.Keys(r.objects), mesh.Key.Compare) {
		lines = append(lines, show(r.objects[key]))
	}
	return strings.Join(lines, "\n")
}

func (r *recorder) entries() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}

func show(o mesh.Object) string {
	text := o.Metadata().String()
	switch o := o.(type) {
	case *mesh.Service:
		for _, p := range o.Ports {
			text += fmt.Sprintf(" :%d", p.Port)
		}
	case *mesh.EndpointSlice:
		for _, e := range o.Endpoints {
			text += fmt.Sprintf(" %v", e.Addresses)
		}
	}
	return text
}

// rig is a running Source over a fresh directory.
type rig struct {
	*testing.T
	dir    string
	source *Source
	sink   *recorder
}

// start runs a Source over dir until the test ends.
func start(t *testing.T, dir string) *rig {
	t.Helper()
	r := &rig{T: t, dir: dir, source: New(Config{Dir: dir, MaxFileBytes: 1 << 16}), sink: newRecorder()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.source.Run(ctx, r.sink) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	r.until("synced", func() bool { return r.source.Status().Synced })
	return r
}

// until waits for a condition on the sink or on Status.
func (r *rig) until(what string, ok func() bool) {
	r.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-r.sink.changed:
		case <-look.C:
		case <-deadline.C:
			r.Fatalf("no %s within %v; sink holds:\n%s\nproblems:\n%s", what, patience, r.sink.view(), r.problems())
		}
	}
}

// holds waits until the sink holds exactly these lines.
func (r *rig) holds(lines ...string) {
	r.Helper()
	want := strings.Join(lines, "\n")
	r.until("state\n"+want+"\n", func() bool { return r.sink.view() == want })
}

// complains waits until the problems, one a line, contain each text; none: until there are no problems.
func (r *rig) complains(texts ...string) {
	r.Helper()
	r.until(fmt.Sprintf("problems %q", texts), func() bool {
		got := r.problems()
		for _, text := range texts {
			if !strings.Contains(got, text) {
				return false
			}
		}
		return len(texts) > 0 || got == ""
	})
}

func (r *rig) problems() string {
	var lines []string
	for _, p := range r.source.Status().Problems {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// save writes a file by rename.
func (r *rig) save(name, text string) { saveFile(r.T, r.dir, name, text) }

func saveFile(t *testing.T, dir, name, text string) {
	t.Helper()
	tmp := filepath.Join(dir, "."+name+".tmp")
	must(t, os.WriteFile(tmp, []byte(text), 0o600))
	must(t, os.Rename(tmp, filepath.Join(dir, name)))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func service(name string, port int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\nspec:\n  ports:\n  - port: %d\n", name, port)
}

func endpoints(name, service string, addresses ...string) string {
	text := "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: " + name +
		"\n  labels:\n    kubernetes.io/service-name: " + service + "\naddressType: IPv4\nports:\n- port: 8080\nendpoints:\n"
	for _, a := range addresses {
		text += "- addresses: [" + a + "]\n"
	}
	return text
}
