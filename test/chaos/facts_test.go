package chaos

import (
	"slices"
	"sync"
	"time"
)

// controlPlane and machine are names of endpoints in the ledger.
const controlPlane, machine = "control plane", "machine"

// service is what the judge must know of one.
type service struct {
	name     string
	protocol protocol
	// peers are the addresses of all that may be listed.
	peers []string
	// timeout, perTry and the limits are those of its annotations; 0 for none.
	timeout, perTry                         time.Duration
	maxConnections, maxRequests, maxPending int
}

// version is a state of a service's manifest. Its span begins when it was
// published, and ends when a later one is known to be in force.
type version struct {
	span
	exists    bool
	addresses []string
}

// facts are what the judge goes by.
type facts struct {
	*ledger
	services map[string]*service
	history  *history
	requests *requests
}

// service gives one; the others are services that never were.
func (f facts) service(name string) *service {
	if s := f.services[name]; s != nil {
		return s
	}
	return &service{name: name}
}

// history has the versions of all services.
type history struct {
	mu       sync.Mutex // guards versions
	versions map[string][]*version
}

// publish notes what is written now, and gives what tells that it is in force.
func (h *history) publish(name string, exists bool, addresses ...string) (inForce func()) {
	v := &version{span: span{from: time.Now()}, exists: exists, addresses: slices.Clone(addresses)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions[name] = append(h.versions[name], v)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, old := range h.versions[name] {
			if old == v {
				return
			}
			if old.to.IsZero() {
				old.to = time.Now()
			}
		}
	}
}

func (h *history) forget(before time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, all := range h.versions {
		h.versions[name] = slices.Clone(slices.DeleteFunc(all, func(v *version) bool { return !v.to.IsZero() && v.to.Before(before) }))
	}
}

func (h *history) near(name string, from, to time.Time) (all []*version) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range h.versions[name] {
		if v.near(from, to) {
			all = append(all, v)
		}
	}
	return all
}

// published tells whether a version that may have been in force between from
// and to is such a one. What never was published does not exist.
func (f facts) published(name string, from, to time.Time, such func(*version) bool) bool {
	all := f.history.near(name, from, to)
	return slices.ContainsFunc(all, such) || len(all) == 0 && f.services[name] == nil && such(&version{})
}

// listed gives the endpoints that were listed throughout, and whether any may have been.
func (f facts) listed(name string, from, to time.Time) (sure []string, some bool) {
	all := f.history.near(name, from, to)
	for i, v := range all {
		some = some || len(v.addresses) > 0
		if i == 0 {
			sure = slices.Clone(v.addresses)
			continue
		}
		sure = slices.DeleteFunc(sure, func(a string) bool { return !slices.Contains(v.addresses, a) })
	}
	return sure, some
}

// requests are all of a round.
type requests struct {
	mu  sync.Mutex // guards all
	all []*sent
}

func (r *requests) add(s *sent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
}

// copy gives them.
func (r *requests) copy() []*sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// forget begins anew.
func (r *requests) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = nil
}

// active is how many requests to a service were under way at some time between from and to.
func (f facts) active(name string, from, to time.Time) (n int) {
	f.requests.mu.Lock()
	defer f.requests.mu.Unlock()
	for _, s := range f.requests.all {
		if s.service == name && s.near(from, to) {
			n++
		}
	}
	return n
}
