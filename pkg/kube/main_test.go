package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests.
const patience = 15 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recorder is a mesh.Sink that remembers.
type recorder struct {
	changed chan struct{}

	mu      sync.Mutex // guards all below
	objects map[mesh.Key]mesh.Object
	log     []string
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
	entry := fmt.Sprintf("delete %s uid=%s version=%s", m.Key, m.UID, m.ResourceVersion)
	r.note(entry, func() { delete(r.objects, m.Key) })
}

func (r *recorder) Synced() { r.note("synced", func() {}) }

func (r *recorder) entries() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}

func (r *recorder) view() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, key := range slices.SortedFunc(maps.Keys(r.objects), func(a, b mesh.Key) int { return cmp.Compare(a.String(), b.String()) }) {
		lines = append(lines, show(r.objects[key]))
	}
	return strings.Join(lines, "\n")
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

// rig is a running Source.
type rig struct {
	*testing.T
	source *Source
	sink   *recorder
	stop   func()
}

// newSource makes a Source for a server, with short times.
func newSource(t *testing.T, url string) *Source {
	t.Helper()
	return newSourceEvery(t, url, 1800*time.Millisecond)
}

func newSourceEvery(t *testing.T, url string, check time.Duration) *Source {
	t.Helper()
	s, err := New(Config{Kubeconfig: kubetest.Kubeconfig(t, url), CheckInterval: check})
	must(t, err)
	s.health.refusedPause = 200 * time.Millisecond
	return s
}

// run runs a Source until the test ends, or until stop is called.
func run(t *testing.T, s *Source) *rig {
	t.Helper()
	r := &rig{T: t, source: s, sink: &recorder{changed: make(chan struct{}, 1), objects: map[mesh.Key]mesh.Object{}}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, r.sink) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.NewTimer(patience).C:
			t.Error("Run does not return")
		}
	})
	t.Cleanup(r.stop)
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
			r.Fatalf("no %s within %v; status %+v; sink holds:\n%s", what, patience, r.source.Status(), r.sink.view())
		}
	}
}

// holds waits until the sink holds exactly these lines.
func (r *rig) holds(lines ...string) {
	r.Helper()
	want := strings.Join(lines, "\n")
	r.until("state\n"+want+"\n", func() bool { return r.sink.view() == want })
}

// is waits for a status, whose reason must contain the text.
func (r *rig) is(synced, connected bool, reason string) mesh.SourceStatus {
	r.Helper()
	var st mesh.SourceStatus
	r.until(fmt.Sprintf("status synced=%v connected=%v %q", synced, connected, reason), func() bool {
		st = r.source.Status()
		return st.Synced == synced && st.Connected == connected && strings.Contains(st.Reason, reason) && (reason != "" || st.Reason == "")
	})
	return st
}
