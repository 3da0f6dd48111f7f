package manifest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/pkg/directory"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/object"
)

// Config configures a Source.
type Config struct {
	// Dir is the directory.
	Dir string
	// MaxFileBytes bounds one file; 0 means 16 MiB.
	MaxFileBytes int64
	// Logger may be nil.
	Logger hclog.Logger
}

// Source is the mesh.Source over a directory; see the package documentation.
// Run may be called once.
type Source struct {
	// set once
	watcher *directory.Watcher[mesh.Key, mesh.Object]

	// owned by Run
	sink      mesh.Sink
	delivered map[mesh.Key]mesh.Object
}

var _ mesh.Source = (*Source)(nil)

// New makes a Source; it touches no file.
func New(c Config) *Source {
	s := &Source{delivered: make(map[mesh.Key]mesh.Object)}
	s.watcher = directory.New(directory.Config[mesh.Key, mesh.Object]{
		Dir: c.Dir, What: "manifests", MaxFileBytes: c.MaxFileBytes, Logger: c.Logger,
		Parse: parse, Deliver: s.deliver, Synced: func() { s.sink.Synced() },
	})
	return s
}

// Name is "files".
func (s *Source) Name() string { return "files" }

// Status is the state as of the last listing, which is at most a second old
// while Run runs.
func (s *Source) Status() mesh.SourceStatus { return s.watcher.Status() }

// Read reads the directory now, delivers what is new, and gives the service
// and its slices as they are then in force: of an invalid file, its last good
// objects. It waits for Run to be running, until ctx ends; it fails when the
// directory cannot be listed, and after Run has returned.
func (s *Source) Read(ctx context.Context, service mesh.Key) ([]mesh.Object, error) {
	service.Kind = mesh.KindService
	found := make(chan []mesh.Object, 1)
	err := s.watcher.Do(ctx, func() { found <- s.of(service) })
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", service, err)
	}
	return <-found, nil
}

// of gives a service and its slices. Called by Run.
func (s *Source) of(service mesh.Key) []mesh.Object {
	var found []mesh.Object
	for _, key := range slices.SortedFunc(maps.Keys(s.delivered), mesh.Key.Compare) {
		o := s.delivered[key]
		if slice, ok := o.(*mesh.EndpointSlice); key == service || ok && slice.ServiceKey() == service {
			found = append(found, o)
		}
	}
	return found
}

// Run delivers the directory into sink until ctx ends, and then gives nil. The
// error is for a directory that cannot be listed at the start.
func (s *Source) Run(ctx context.Context, sink mesh.Sink) error {
	s.sink = sink
	return s.watcher.Run(ctx)
}

// deliver tells the sink what differs from what it was told before. A file may
// have changed several objects: between the old and the new addresses of a service there is nothing else.
func (s *Source) deliver(items map[mesh.Key]directory.Item[mesh.Key, mesh.Object]) {
	mesh.Batch(s.sink, func(sink mesh.Sink) { s.tell(sink, items) })
}

// tell goes by the order of keys.
func (s *Source) tell(sink mesh.Sink, items map[mesh.Key]directory.Item[mesh.Key, mesh.Object]) {
	for _, key := range slices.SortedFunc(maps.Keys(s.delivered), mesh.Key.Compare) {
		if _, ok := items[key]; !ok {
			sink.Delete(*s.delivered[key].Metadata())
		}
	}
	next := make(map[mesh.Key]mesh.Object, len(items))
	for _, key := range slices.SortedFunc(maps.Keys(items), mesh.Key.Compare) {
		o := items[key].Value
		next[key] = o
		if old := s.delivered[key]; old == o || reflect.DeepEqual(old, o) {
			continue
		}
		sink.Put(o)
	}
	s.delivered = next
}

// parse decodes and converts one file's content.
func parse(name string, data []byte) directory.Content[mesh.Key, mesh.Object] {
	objects, findings := decode(name, data)
	var c directory.Content[mesh.Key, mesh.Object]
	for _, d := range objects {
		o, problems, err := object.Convert(d.object)
		if err != nil {
			findings.Fatal(d.line, "%s", directory.OneLine(err))
			continue
		}
		m := o.Metadata()
		m.Origin = name
		m.ChangedAt, m.ChangedBy = time.Time{}, ""
		c.Items = append(c.Items, directory.Item[mesh.Key, mesh.Object]{Key: m.Key, Line: d.line, Value: o})
		c.Problems = append(c.Problems, problems...)
	}
	c.Findings = findings.All
	return c
}
