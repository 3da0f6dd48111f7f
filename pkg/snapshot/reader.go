package snapshot

import "github.com/freshmesh/freshmesh/pkg/mesh"

// Reader is one stream's hold on the store: its view, and what it wants to
// hear of. Subscribe before reading the View, and no change is missed.
type Reader struct {
	store *Store
	// id orders the readers of a store by when they were opened.
	id   uint64
	key  mesh.View
	own  Own
	wake chan struct{}
}

// Open gives a Reader. Close it after use.
func (s *Store) Open(key mesh.View, own Own) *Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views[key]++
	s.opened++
	return &Reader{store: s, id: s.opened, key: key, own: own, wake: make(chan struct{}, 1)}
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
		in.add(name, r)
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
		in.all = in.all.with(r)
	} else {
		in.all = in.all.without(r)
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
		in = &interest{byName: make(map[mesh.Name]readers)}
		s.interest[t] = in
	}
	return in
}

// tidy forgets a type that nobody subscribes to: clients may ask for any type.
func (s *Store) tidy(t mesh.Type, in *interest) {
	if in.empty() {
		delete(s.interest, t)
	}
}
