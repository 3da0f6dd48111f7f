package kubetest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/freshmesh/freshmesh/internal/testaddr"
)

// Server is a running API server.
type Server struct {
	// Address is 127.0.0.1 and a port that stays the same over Stop and Start.
	Address string

	t      testing.TB
	server *http.Server
	served sync.WaitGroup

	mu       sync.Mutex // guards all below
	faults   Faults
	objects  map[string]Object // by plural/namespace/name; the objects are never changed
	log      []change
	changed  chan struct{} // closed with every change of anything above
	protocol string
	counts   map[string]int
}

// Faults is what is wrong with a Server. Keys are plurals, such as "endpointslices".
type Faults struct {
	// Status answers every request for a resource, instead of the right answer.
	Status map[string]int
	// Slow resources' lists wait until they are slow no more.
	Slow map[string]bool
	// Deaf resources' watches stay open and deliver nothing more, new ones nothing at all.
	Deaf map[string]bool
	// Mute resources' watches deliver nothing either, neither events nor
	// bookmarks, and end when they were asked to.
	Mute map[string]bool
	// NoBookmarks: watches end without one.
	NoBookmarks bool
	// Streaming: whether a watch can begin with a listing, as with real API servers.
	Streaming bool

	version int // of the newest change
	oldest  int // a watch that begins at an older version is refused
	epoch   int // a watch of an earlier epoch ends
}

// EndWatches ends all watches of now.
func (f *Faults) EndWatches() { f.epoch++ }

// Expire ends all watches of now, and forgets the changes until now: no watch can begin before them.
func (f *Faults) Expire() {
	f.oldest = f.version
	f.epoch++
}

type change struct {
	version int
	plural  string
	event   []byte
}

// NewServer starts a Server without objects, which ends with the test.
func NewServer(tb testing.TB) *Server {
	tb.Helper()
	s := New(tb)
	s.Start()
	tb.Cleanup(s.Stop)
	return s
}

// New makes a Server that does not listen: it is to be served as an
// http.Handler, or by Start.
func New(tb testing.TB) *Server {
	tb.Helper()
	return &Server{
		t: tb, Address: "127.0.0.1:0", objects: map[string]Object{}, counts: map[string]int{}, changed: make(chan struct{}),
		faults: Faults{version: 100, Status: map[string]int{}, Slow: map[string]bool{}, Deaf: map[string]bool{}, Mute: map[string]bool{}},
	}
}

// Stop closes the port and cuts every connection. What the server holds stays,
// and can be changed.
func (s *Server) Stop() {
	_ = s.server.Close()
	s.Set((*Faults).EndWatches)
	s.served.Wait()
}

// Start opens the port again after Stop.
func (s *Server) Start() {
	s.t.Helper()
	l, err := testaddr.Listen(context.Background(), s.Address)
	if err != nil {
		s.t.Fatalf("API server: %v", err)
	}
	s.Address = l.Addr().String()
	server := &http.Server{Handler: s} //nolint:gosec // its clients are tests
	s.server = server
	s.served.Go(func() { _ = server.Serve(l) })
}

// Kubeconfig writes a kubeconfig file for the server, and gives its path.
func (s *Server) Kubeconfig() string {
	s.t.Helper()
	return Kubeconfig(s.t, "http://"+s.Address)
}

// Kubeconfig writes a kubeconfig file for a server's URL, and gives its path.
// More fields of the cluster may follow the URL, as in YAML: "URL, field: value".
func Kubeconfig(tb testing.TB, url string) string {
	tb.Helper()
	const form = `apiVersion: v1
kind: Config
current-context: x
contexts:
- name: x
  context: {cluster: c, user: u}
clusters:
- name: c
  cluster: {server: %s}
users:
- name: u
  user: {token: t}
`
	path := filepath.Join(tb.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, fmt.Appendf(nil, form, url), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// State is what a Server held at some time.
type State struct {
	version int
	objects map[string]Object
}

// Save gives what the server holds now.
func (s *Server) Save() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{version: s.faults.version, objects: maps.Clone(s.objects)}
}

// Rewind puts the server back to a state, as a restored backup does: later
// changes never were, their versions are used anew, and all watches end.
func (s *Server) Rewind(to State) {
	s.change(func() {
		s.objects, s.faults.version = maps.Clone(to.objects), to.version
		s.log = slices.DeleteFunc(s.log, func(c change) bool { return c.version > to.version })
		s.faults.epoch++
	})
}

// Tick moves the version on, as changes of kinds that nobody here reads do.
func (s *Server) Tick() { s.Set(func(f *Faults) { f.version++ }) }

// Count is how many requests were served so far, by what they asked for:
// "list services", "watch services", "get services", and "probe services" for a list of one.
func (s *Server) Count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[what]
}

// Set changes what is wrong, in one step, and wakes all requests that wait.
func (s *Server) Set(edit func(*Faults)) { s.change(func() { edit(&s.faults) }) }

// Protocol is that of the last request, as in http.Request.Proto.
func (s *Server) Protocol() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.protocol
}

// change changes anything under the lock and wakes all who wait.
func (s *Server) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Put creates or updates objects, which it copies. The server gives them UIDs
// and resource versions: "uid-101" and "101" to the first, and so on.
func (s *Server) Put(objects ...Object) {
	for _, o := range objects {
		s.change(func() {
			s.faults.version++
			version := strconv.Itoa(s.faults.version)
			stored, event := o.DeepCopyObject().(Object), "ADDED"
			stored.SetUID(types.UID("uid-" + version))
			if old, ok := s.objects[pathOf(o)]; ok {
				event = "MODIFIED"
				stored.SetUID(old.GetUID())
			}
			stored.SetResourceVersion(version)
			s.objects[pathOf(o)] = stored
			s.record(event, stored)
		})
	}
}

// Remove deletes the object of the same kind, namespace and name, if there is one.
func (s *Server) Remove(o Object) {
	s.change(func() {
		old, ok := s.objects[pathOf(o)]
		if !ok {
			return
		}
		s.faults.version++
		delete(s.objects, pathOf(o))
		last := old.DeepCopyObject().(Object)
		last.SetResourceVersion(strconv.Itoa(s.faults.version))
		s.record("DELETED", last)
	})
}

func pathOf(o Object) string { return plural(o) + "/" + o.GetNamespace() + "/" + o.GetName() }

// record appends to the log; with mu.
func (s *Server) record(event string, o Object) {
	s.log = append(s.log, change{version: s.faults.version, plural: plural(o), event: eventJSON(event, o)})
}

func eventJSON(event string, o any) []byte {
	text, _ := json.Marshal(map[string]any{"type": event, "object": o})
	return append(text, '\n')
}
