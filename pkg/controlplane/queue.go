package controlplane

import (
	"sync"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/static"
	"github.com/freshmesh/freshmesh/pkg/translate"
)

// queue takes what the sources deliver and holds the last change of each object
// until the loop takes them. It implements mesh.BatchSink, and as fileQueue static.Sink. Its size is bounded by the number of objects.
type queue struct {
	ready chan struct{} // holds one token while there is something to take

	mu      sync.Mutex // guards what follows
	order   []mesh.Key
	changes map[mesh.Key]translate.Change
	// files is what the directory of static resources holds; nil once taken.
	files  *[]static.Resource
	synced [origins]bool
}

// The sources that a queue takes from.
const (
	fromObjects = iota
	fromFiles
	origins
)

// batch is what the loop takes from a queue.
type batch struct {
	changes []translate.Change
	// files are all static resources; nil when they have not changed.
	files *[]static.Resource
	// synced is true once every source has synced and everything from before
	// that has been taken, this time included.
	synced bool
}

// newQueue makes a queue that waits for one source, or for both.
func newQueue(withFiles bool) *queue {
	q := &queue{ready: make(chan struct{}, 1), changes: make(map[mesh.Key]translate.Change)}
	q.synced[fromFiles] = !withFiles
	return q
}

// fileQueue is the queue as a static.Sink.
type fileQueue struct{ *queue }

// Resources implements static.Sink.
func (q fileQueue) Resources(all []static.Resource) {
	q.mu.Lock()
	q.files = &all
	q.mu.Unlock()
	q.poke()
}

// Synced implements static.Sink.
func (q fileQueue) Synced() { q.sync(fromFiles) }

// Put implements mesh.Sink.
func (q *queue) Put(o mesh.Object) { q.add(put(o)) }

// Delete implements mesh.Sink.
func (q *queue) Delete(m mesh.Meta) { q.add(deletion(m)) }

// Batch implements mesh.BatchSink.
func (q *queue) Batch(fill func(mesh.Sink)) {
	c := collector{queue: q}
	fill(&c)
	q.add(c.all...)
}

// collector is a queue's Sink for one batch.
type collector struct {
	*queue
	all []entry
}

// Put implements mesh.Sink.
func (c *collector) Put(o mesh.Object) { c.all = append(c.all, put(o)) }

// Delete implements mesh.Sink.
func (c *collector) Delete(m mesh.Meta) { c.all = append(c.all, deletion(m)) }

// entry is one change, and of what.
type entry struct {
	meta   *mesh.Meta
	change translate.Change
}

func put(o mesh.Object) entry {
	return entry{o.Metadata(), translate.Change{Put: o, ReceivedAt: time.Now()}}
}

func deletion(m mesh.Meta) entry {
	return entry{&m, translate.Change{Delete: m, ReceivedAt: time.Now()}}
}

// Synced implements mesh.Sink.
func (q *queue) Synced() { q.sync(fromObjects) }

func (q *queue) sync(source int) {
	q.mu.Lock()
	q.synced[source] = true
	q.mu.Unlock()
	q.poke()
}

// add takes all of the entries before any can be taken.
func (q *queue) add(all ...entry) {
	q.mu.Lock()
	for _, e := range all {
		q.note(e.meta, e.change)
	}
	q.mu.Unlock()
	q.poke()
}

// note needs mu.
func (q *queue) note(m *mesh.Meta, c translate.Change) {
	waiting, known := q.changes[m.Key]
	switch {
	case !known:
		q.order = append(q.order, m.Key)
		q.changes[m.Key] = c
	case c.Put == nil && waiting.Put != nil && newerThan(waiting.Put.Metadata(), m):
		// A late word about an object whose successor waits here already.
	default:
		q.changes[m.Key] = c
	}
}

// newerThan tells that what waits is another object than the one deleted. An
// older version of the same object is for the translator to refuse.
func newerThan(waiting, deleted *mesh.Meta) bool {
	return deleted.UID != "" && waiting.UID != "" && waiting.UID != deleted.UID
}

func (q *queue) poke() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take empties the queue.
func (q *queue) take() batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := batch{
		changes: make([]translate.Change, 0, len(q.order)), files: q.files,
		synced: q.synced[fromObjects] && q.synced[fromFiles],
	}
	for _, key := range q.order {
		b.changes = append(b.changes, q.changes[key])
	}
	q.order, q.files = nil, nil
	clear(q.changes)
	return b
}
