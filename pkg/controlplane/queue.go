package controlplane

import (
	"sync"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/translate"
)

// queue takes what a source delivers and holds the last change of each object
// until the loop takes them. It implements mesh.Sink. Its size is bounded by the
// number of objects.
type queue struct {
	ready chan struct{} // holds one token while there is something to take

	mu      sync.Mutex // guards what follows
	order   []mesh.Key
	changes map[mesh.Key]translate.Change
	synced  bool
}

func newQueue() *queue {
	return &queue{ready: make(chan struct{}, 1), changes: make(map[mesh.Key]translate.Change)}
}

// Put implements mesh.Sink.
func (q *queue) Put(o mesh.Object) {
	q.add(o.Metadata(), translate.Change{Put: o})
}

// Delete implements mesh.Sink.
func (q *queue) Delete(m mesh.Meta) {
	q.add(&m, translate.Change{Delete: m})
}

// Synced implements mesh.Sink.
func (q *queue) Synced() {
	q.mu.Lock()
	q.synced = true
	q.mu.Unlock()
	q.poke()
}

func (q *queue) add(m *mesh.Meta, c translate.Change) {
	q.mu.Lock()
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
	q.mu.Unlock()
	q.poke()
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

// take empties the queue. synced is true once the source has synced and
// everything from before that has been taken, this time included.
func (q *queue) take() (changes []translate.Change, synced bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	changes = make([]translate.Change, 0, len(q.order))
	for _, key := range q.order {
		changes = append(changes, q.changes[key])
	}
	q.order = nil
	clear(q.changes)
	return changes, q.synced
}
