package static

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/freshmesh/freshmesh/pkg/directory"
	"github.com/freshmesh/freshmesh/pkg/mesh"
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

// Resource is one resource of a file. Its Cause is that file.
type Resource struct {
	mesh.Resource
	// Line is where it begins, from 1.
	Line int
}

// Sink takes what a Source delivers; its methods never block.
type Sink interface {
	// Resources takes all resources together, sorted by type and name, after
	// each change. The slice is never changed later.
	Resources([]Resource)
	// Synced says that what stood there at the start has been given.
	Synced()
}

// Source is the directory. Run may be called once.
type Source struct {
	watcher *directory.Watcher[mesh.ResourceName, mesh.Resource]
	sink    Sink // owned by Run
}

// New makes a Source; it touches no file.
func New(c Config) *Source {
	s := &Source{}
	s.watcher = directory.New(directory.Config[mesh.ResourceName, mesh.Resource]{
		Dir: c.Dir, What: "static resources", MaxFileBytes: c.MaxFileBytes, Logger: c.Logger,
		Parse: parse, Deliver: s.deliver, Synced: func() { s.sink.Synced() },
	})
	return s
}

// Status is the state as of the last listing, which is at most a second old
// while Run runs.
func (s *Source) Status() mesh.SourceStatus { return s.watcher.Status() }

// Run delivers the directory into sink until ctx ends, and then gives nil. The
// error is for a directory that cannot be listed at the start.
func (s *Source) Run(ctx context.Context, sink Sink) error {
	s.sink = sink
	return s.watcher.Run(ctx)
}

func (s *Source) deliver(items map[mesh.ResourceName]directory.Item[mesh.ResourceName, mesh.Resource]) {
	out := make([]Resource, 0, len(items))
	for _, name := range slices.SortedFunc(maps.Keys(items), compareNames) {
		item := items[name]
		r := Resource{Resource: item.Value, Line: item.Line}
		r.Static = true
		r.Cause = mesh.Cause{Object: mesh.Key{Kind: mesh.KindFile, Name: item.File}}
		out = append(out, r)
	}
	s.sink.Resources(out)
}

func compareNames(a, b mesh.ResourceName) int {
	return cmp.Or(strings.Compare(string(a.Type), string(b.Type)), strings.Compare(a.Name, b.Name))
}
