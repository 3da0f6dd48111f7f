package snapshot

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Config of a Store.
type Config struct {
	// LogLimit bounds the changes that are remembered for each type, removals
	// included; 0 means 16,384. A wildcard stream that is further behind starts anew.
	LogLimit int
}

// Store holds the newest Snapshot.
type Store struct {
	// set once
	logLimit int
	// atomic
	current atomic.Pointer[Snapshot]

	mu sync.Mutex // guards what follows; a leaf: nothing is called and no channel is waited on under it
	// views: how many Readers have each view open.
	views map[mesh.View]int
	// opened counts the Readers.
	opened uint64
	// interest: who must hear of a change, by type.
	interest map[mesh.Type]*interest
}

// New makes an empty Store, at generation 0.
func New(c Config) *Store {
	if c.LogLimit <= 0 {
		c.LogLimit = 16_384
	}
	s := &Store{logLimit: c.LogLimit, views: make(map[mesh.View]int), interest: make(map[mesh.Type]*interest)}
	s.current.Store(&Snapshot{})
	return s
}

// Snapshot gives the newest snapshot.
func (s *Store) Snapshot() *Snapshot { return s.current.Load() }

// View gives what a view sees now, without any node's own resources.
func (s *Store) View(key mesh.View) View { return View{snap: s.current.Load(), key: key} }

// Publish makes the next snapshot and wakes the Readers that subscribe to what
// changed. What is the same as before is dropped; when nothing is left, there
// is no new generation and the result is false. Only one goroutine may publish.
func (s *Store) Publish(u mesh.Update, at time.Time) (*Snapshot, bool) {
	old := s.current.Load()
	p := &publication{store: s, old: old, generation: old.generation + 1, at: at, drafts: make(map[mesh.Type]*draft)}
	for _, r := range u.Put {
		p.put(r)
	}
	for _, r := range u.Remove {
		p.remove(r)
	}
	if len(p.changed) == 0 {
		return old, false
	}
	next := p.snapshot()
	s.current.Store(next)
	s.wake(p.changed)
	return next, true
}

// wanted gives the masked views that somebody has open.
func (s *Store) wanted(fields mesh.ViewFields) map[mesh.View]bool {
	if fields == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[mesh.View]bool)
	for v := range s.views {
		out[v.Mask(fields)] = true
	}
	return out
}

func (s *Store) wake(changed []mesh.ResourceName) {
	for _, r := range s.interested(changed) {
		r.poke()
	}
}

func (s *Store) interested(changed []mesh.ResourceName) []*Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Reader
	wild := make(map[mesh.Type]bool)
	for _, c := range changed {
		in := s.interest[c.Type]
		if in == nil {
			continue
		}
		if !wild[c.Type] {
			wild[c.Type] = true
			out = append(out, in.all...)
		}
		out = append(out, in.byName[mesh.Intern(c.Name)]...)
	}
	return out
}
