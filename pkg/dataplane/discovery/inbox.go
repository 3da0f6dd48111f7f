package discovery

import "sync"

// inbox holds what callers want of the owner, coalesced by name.
type inbox struct {
	// wake has one place: it says that there is something.
	wake chan struct{}

	// mu guards what follows: name → pinned, and sets of names.
	mu         sync.Mutex
	subscribed map[string]bool
	distrusted map[string]bool
	reset      map[string]bool
}

func (i *inbox) subscribe(name string, pinned bool) {
	i.mu.Lock()
	if i.subscribed == nil {
		i.subscribed = map[string]bool{}
	}
	i.subscribed[name] = i.subscribed[name] || pinned
	i.mu.Unlock()
	i.ring()
}

func (i *inbox) put(set *map[string]bool, name string) {
	i.mu.Lock()
	if *set == nil {
		*set = map[string]bool{}
	}
	(*set)[name] = true
	i.mu.Unlock()
	i.ring()
}

func (i *inbox) ring() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// take empties the inbox.
func (i *inbox) take() (subscribed, distrusted, reset map[string]bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	subscribed, distrusted, reset = i.subscribed, i.distrusted, i.reset
	i.subscribed, i.distrusted, i.reset = nil, nil, nil
	return subscribed, distrusted, reset
}
