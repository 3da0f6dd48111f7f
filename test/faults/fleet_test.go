package faults

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

// The two services of a world. Traffic goes to echo; other takes over addresses.
const (
	echo  = "echo"
	other = "other"
)

// instance is one life of one backend.
type instance struct {
	*backend
	service string
	// until is when it ceased to be an endpoint; zero while it is one.
	until time.Time
}

// fleet is all the instances that a world has had, and which of them are
// endpoints now. Its methods are safe for concurrent use.
type fleet struct {
	t      testing.TB
	ip     netip.Addr
	source source

	mu        sync.Mutex // guards what follows
	instances map[string]*instance
	endpoints map[string][]*instance
	// dead counts the instances that were killed.
	dead int
	// published is when endpoints changed last.
	published time.Time
}

func newFleet(t testing.TB, ip netip.Addr, s source) *fleet {
	t.Helper()
	return &fleet{t: t, ip: ip, source: s, instances: make(map[string]*instance), endpoints: make(map[string][]*instance)}
}

// start starts instances of a service on free ports. They are no endpoints yet.
func (f *fleet) start(service string, count int) []*instance {
	var all []*instance
	for range count {
		all = append(all, f.startAt(service, netip.AddrPortFrom(f.ip, 0).String()))
	}
	return all
}

func (f *fleet) startAt(service, address string) *instance {
	f.mu.Lock()
	name := fmt.Sprintf("%s-%d", service, len(f.instances)+1)
	f.instances[name] = nil
	f.mu.Unlock()
	i := &instance{backend: startBackend(f.t, name, address), service: service}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instances[name] = i
	return i
}

// publish makes these instances the endpoints of a service, and no others.
func (f *fleet) publish(service string, instances ...*instance) {
	addresses := make(map[string]string)
	f.mu.Lock()
	f.published = time.Now()
	for _, old := range f.endpoints[service] {
		if !slices.Contains(instances, old) {
			old.until = f.published
		}
	}
	f.endpoints[service] = instances
	for _, i := range instances {
		addresses[i.name] = i.address
	}
	f.mu.Unlock()
	f.source.put(service, addresses)
}

// now gives the endpoints of a service, and when endpoints changed last.
func (f *fleet) now(service string) ([]*instance, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.endpoints[service]), f.published
}

// wrong tells whether an instance had no business to answer a request for a
// service that began at some time.
func (f *fleet) wrong(service, name string, began time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.instances[name]
	return i == nil || i.service != service || !i.until.IsZero() && i.until.Before(began)
}

// kill ends instances for good.
func (f *fleet) kill(instances ...*instance) {
	for _, i := range instances {
		i.kill()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead += len(instances)
}

// deaths gives how many instances were killed. Their addresses refuse, some of them only for a moment.
func (f *fleet) deaths() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// turnover replaces three of the four endpoints of echo: one dies, the address of one
// is taken over by an instance of other, and one lives on although it is no endpoint any more.
func (f *fleet) turnover() {
	old, _ := f.now(echo)
	neighbours, _ := f.now(other)
	dead, reused, stays := old[0], old[1], old[3]
	fresh := f.start(echo, 3)
	f.kill(dead, reused)
	taken := f.startAt(other, reused.address)
	f.publish(other, append(neighbours, taken)...)
	f.publish(echo, append([]*instance{stays}, fresh...)...)
}

// takeover has the address of one endpoint of echo taken over by other; nothing dies otherwise.
func (f *fleet) takeover() {
	old, _ := f.now(echo)
	neighbours, _ := f.now(other)
	fresh := f.start(echo, 1)
	f.kill(old[0])
	taken := f.startAt(other, old[0].address)
	f.publish(other, append(neighbours, taken)...)
	f.publish(echo, append(old[1:], fresh...)...)
}

// replaceQuietly replaces one endpoint, which lives on: no request fails, and no
// proxy has a reason to ask.
func (f *fleet) replaceQuietly() {
	old, _ := f.now(echo)
	f.publish(echo, append(old[1:], f.start(echo, 1)...)...)
}

// replaceAll replaces every endpoint of echo at once; the old ones die.
func (f *fleet) replaceAll() {
	old, _ := f.now(echo)
	fresh := f.start(echo, len(old))
	f.kill(old...)
	f.publish(echo, fresh...)
}
