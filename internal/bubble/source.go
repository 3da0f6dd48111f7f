package bubble

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Source is a mesh.Source whose objects are put and deleted by the test. It
// outlives the control planes that run on it, one after the other. Safe for
// concurrent use.
type Source struct {
	mu      sync.Mutex // guards what follows
	objects map[mesh.Key]mesh.Object
	sink    mesh.Sink
}

// NewSource gives one without objects.
func NewSource() *Source { return &Source{objects: make(map[mesh.Key]mesh.Object)} }

// Put makes an object exist in this form.
func (s *Source) Put(o mesh.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[o.Metadata().Key] = o
	if s.sink != nil {
		s.sink.Put(o)
	}
}

// Delete makes an object not exist.
func (s *Source) Delete(key mesh.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
	if s.sink != nil {
		s.sink.Delete(mesh.Meta{Key: key})
	}
}

// Name implements mesh.Source.
func (s *Source) Name() string { return "files" }

// Run implements mesh.Source.
func (s *Source) Run(ctx context.Context, sink mesh.Sink) error {
	s.mu.Lock()
	for _, key := range slices.SortedFunc(maps.Keys(s.objects), mesh.Key.Compare) {
		sink.Put(s.objects[key])
	}
	sink.Synced()
	s.sink = sink
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sink == sink {
		s.sink = nil
	}
	return nil
}

// Status implements mesh.Source: it is always in reach.
func (s *Source) Status() mesh.SourceStatus {
	return mesh.SourceStatus{Synced: true, Connected: true, LastSeenAt: time.Now()}
}

// Read implements mesh.Source.
func (s *Source) Read(_ context.Context, service mesh.Key) ([]mesh.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []mesh.Object
	for _, key := range slices.SortedFunc(maps.Keys(s.objects), mesh.Key.Compare) {
		switch o := s.objects[key].(type) {
		case *mesh.Service:
			if o.Key == service {
				out = append(out, o)
			}
		case *mesh.EndpointSlice:
			if o.ServiceKey() == service {
				out = append(out, o)
			}
		}
	}
	return out, nil
}
