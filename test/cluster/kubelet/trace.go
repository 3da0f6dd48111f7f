package kubelet

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Event is one thing that happened to a container.
type Event struct {
	At        time.Time
	Pod       types.NamespacedName
	Container string
	// What is started, ready, unready, preStop, preStop done, preStop failed, SIGTERM, SIGKILL, ended or deleted.
	What string
	// Detail says more: an exit code, an error, the response that a preStop got.
	Detail string
}

// Trace is what happened on a node since its start, in order.
type Trace struct {
	mu     sync.Mutex // guards events
	events []Event
}

func (t *Trace) add(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.At = time.Now()
	t.events = append(t.events, e)
}

// Of gives what happened to one pod's containers.
func (t *Trace) Of(pod types.NamespacedName) []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	var of []Event
	for _, e := range t.events {
		if e.Pod == pod {
			of = append(of, e)
		}
	}
	return of
}

// All gives everything.
func (t *Trace) All() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.events)
}
