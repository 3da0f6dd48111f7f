package history

import (
	"slices"
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// What happened to a resource.
type What string

// The things that happen.
const (
	Added   What = "added"
	Changed What = "changed"
	Removed What = "removed"
)

// Entry is one change of one resource. Immutable once added.
type Entry struct {
	Generation mesh.Generation
	Resource   mesh.ResourceName
	What       What
	// Version is "" for a removal.
	Version     mesh.Version
	PublishedAt time.Time
	Cause       mesh.Cause
	// Endpoints are those of an assignment that came, went or changed, sorted; at
	// most 1,024, and More counts the others.
	Endpoints []EndpointChange
	More      int
}

func (e *Entry) lines() int { return 1 + len(e.Endpoints) }

// Floor is where a log begins: it has every change after a generation.
type Floor struct {
	Generation mesh.Generation
	// At is when that generation was published, or when the server had synced.
	At time.Time
	// Start tells that nothing has gone: the log reaches back to the server's start.
	Start bool
}

// DefaultLimit is how many lines a log holds unless New is told otherwise.
const DefaultLimit = 65_536

// Log is the newest changes. Safe for concurrent use.
type Log struct {
	// set once
	limit int

	mu sync.Mutex // guards what follows
	// entries from first on are in force, by generation.
	entries []Entry
	first   int
	lines   int
	floor   Floor
	dropped uint64
}

// New makes a log of at most limit lines, but always of the last change; 0 means DefaultLimit.
func New(limit int) *Log {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &Log{limit: limit}
}

// Begin says what the log does not have: everything up to a generation.
func (l *Log) Begin(g mesh.Generation, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.floor = Floor{Generation: g, At: at, Start: true}
}

// Add takes changes, in the order of their generations, and gives how many older ones had to go.
func (l *Log) Add(entries ...Entry) (dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range entries {
		l.lines += entries[i].lines()
		l.entries = append(l.entries, entries[i])
	}
	for l.lines > l.limit && l.first < len(l.entries)-1 {
		gone := &l.entries[l.first]
		l.lines -= gone.lines()
		l.floor = Floor{Generation: gone.Generation, At: gone.PublishedAt}
		*gone = Entry{}
		l.first++
		dropped++
	}
	if l.first > len(l.entries)/4 {
		l.entries, l.first = slices.Delete(l.entries, 0, l.first), 0 // in place
	}
	l.dropped += uint64(dropped)
	return dropped
}

// Of gives the changes of some resources, oldest first, and where the log begins.
func (l *Log) Of(names ...mesh.ResourceName) ([]Entry, Floor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Entry
	for i := l.first; i < len(l.entries); i++ {
		if slices.Contains(names, l.entries[i].Resource) {
			out = append(out, l.entries[i])
		}
	}
	return out, l.floor
}

// Names gives the names of a type's resources that the log has changes of, in no order.
func (l *Log) Names(t mesh.Type) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(map[string]struct{})
	var out []string
	for i := l.first; i < len(l.entries); i++ {
		r := l.entries[i].Resource
		if _, again := seen[r.Name]; r.Type != t || again {
			continue
		}
		seen[r.Name] = struct{}{}
		out = append(out, r.Name)
	}
	return out
}

// Size gives the lines held, and how many changes have gone.
func (l *Log) Size() (lines int, dropped uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines, l.dropped
}
