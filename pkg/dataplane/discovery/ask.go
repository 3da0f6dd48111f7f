package discovery

import (
	"maps"
	"slices"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// ask requests a resource (again). An older unanswered request keeps its
// deadline: asking often must not put off the watchdog.
func (c *core) ask(now time.Time, e *entry) {
	if !c.open {
		e.unoffered = true
		return
	}
	c.subscribe[e.name.Type][e.name.Name] = true
	c.await(now, e)
}

// askAnew ends the subscription and begins it again, so that the server starts from nothing.
func (c *core) askAnew(now time.Time, e *entry) {
	if c.open && c.asked[e.name.Type] {
		c.unsubscribe[e.name.Type][e.name.Name] = true
	}
	c.ask(now, e)
}

func (c *core) await(now time.Time, e *entry) {
	if e.askedAt.IsZero() {
		e.askedAt = now
	}
	c.schedule(now, e)
}

// schedule sets the next re-validation, within maxAge and spread out.
func (c *core) schedule(now time.Time, e *entry) {
	e.dueAt = now.Add(time.Duration((0.7 + 0.25*c.random.Float64()) * float64(c.maxAge)))
}

// flush turns the queued names into requests, clusters before endpoints. A name
// in both queues is unsubscribed first and subscribed by a request of its own.
func (c *core) flush() {
	if !c.open {
		return
	}
	for _, t := range usedTypes {
		gone, wanted := sortedKeys(c.unsubscribe[t]), sortedKeys(c.subscribe[t])
		clear(c.unsubscribe[t])
		clear(c.subscribe[t])
		if len(gone) > 0 && c.asked[t] {
			c.request(t).ResourceNamesUnsubscribe = gone
		}
		if len(wanted) == 0 {
			continue
		}
		first := !c.asked[t]
		r := c.request(t)
		r.ResourceNamesSubscribe = wanted
		if first {
			r.InitialResourceVersions = c.versions(t)
		}
	}
}

// versions is name → version of what is offered; nil when nothing is.
func (c *core) versions(t mesh.Type) map[string]string {
	m := map[string]string{}
	for _, e := range c.entries {
		if e.name.Type == t && c.offers(e) {
			m[e.name.Name] = e.resource.GetVersion()
		}
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

// request appends a request; the first on a stream carries the node.
func (c *core) request(t mesh.Type) *discoveryv3.DeltaDiscoveryRequest {
	r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(t)}
	if len(c.asked) == 0 {
		r.Node = c.node
	}
	c.asked[t] = true
	c.out.requests = append(c.out.requests, r)
	return r
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
