package snapshot

import "github.com/freshmesh/freshmesh/pkg/mesh"

// Reader is one stream's hold on the store: its view, and what it wants to
// hear of. Subscribe before reading the View, and no change is missed.
type Reader struct {
	store *Store
	key   mesh.View
	own   Own
	wake  chan struct{}
}

// Open gives a Reader. Close it after use.
func (s *Store) Open(key mesh.View, own Own) *Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views[key]++
	return &Reader{store: s, key: key, own: own, wake: make(chan struct{}, 1)}
}

// View gives the newest snapshot through the reader's view.
func (r *Reader) View() View { return View{snap: r.store.current.Load(), key: r.key, own: r.own} }

// Woken delivers once after one or more changes of what is subscribed.
func (r *Reader) Woken() <-chan struct{} { return r.wake }

func (r *Reader) poke() {
	select {
	case r.wake <- struct{}{}:
	default: // it will look at the newest snapshot anyway
	}
}

// Subscribe asks to be woken for these names of a type.
func (r *Reader) Subscribe(t mesh.Type, names ...mesh.Name) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	in := r.store.interestIn(t)
	for _, name := range names {
		readers := in.byName[name]
		if readers == nil {
			readers = make(map[*Reader]struct{}, 1)
			in.byName[name] = readers
		}
		readers[r] = struct{}{}
	}
}

// Unsubscribe takes names back.
func (r *Reader) Unsubscribe(t mesh.Type, names ...mesh.Name) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	in := r.store.interestIn(t)
	for _, name := range names {
		in.drop(name, r)
	}
	r.store.tidy(t, in)
}

// SubscribeAll asks to be woken for every resource of a type, or takes that back.
func (r *Reader) SubscribeAll(t mesh.Type, on bool) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	in := r.store.interestIn(t)
	if on {
		in.all[r] = struct{}{}
	} else {
		delete(in.all, r)
		r.store.tidy(t, in)
	}
}

// Close takes back the view. The subscriptions must have been taken back before.
func (r *Reader) Close() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.store.views[r.key]--; r.store.views[r.key] <= 0 {
		delete(r.store.views, r.key)
	}
}

func (s *Store) interestIn(t mesh.Type) *interest {
	in := s.interest[t]
	if in == nil {
		in = &interest{all: make(map[*Reader]struct{}), byName: make(map[mesh.Name]map[*Reader]struct{})}
		s.interest[t] = in
	}
	return in
}

// tidy forgets a type that nobody subscribes to: clients may ask for any type.
func (s *Store) tidy(t mesh.Type, in *interest) {
	if len(in.all) == 0 && len(in.byName) == 0 {
		delete(s.interest, t)
	}
}

func (in *interest) drop(name mesh.Name, r *Reader) {
	readers := in.byName[name]
	delete(readers, r)
	if len(readers) == 0 {
		delete(in.byName, name)
	}
}
