package discovery

import (
	"math/rand/v2"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// limits are the durations that the core goes by; see Config for what they mean.
type limits struct {
	maxAge, idle, silence, answer time.Duration
	disableRefresh                bool
	// maxUnknown is the limit that the owner keeps; from half of it on, absent names go sooner.
	maxUnknown int
}

const (
	// distrustGap is how often a cluster is asked again on suspicion.
	distrustGap = time.Second
	// absentIdle is how long a name with nothing in force stays subscribed unused:
	// names come from whoever sends requests, and most wrong ones come once.
	absentIdle = time.Minute
	// crowdedIdle is that of names that do not exist, when there are many.
	crowdedIdle = 5 * time.Second
)

// usedTypes are the types that are subscribed, in the order in which they are asked for.
var usedTypes = [...]mesh.Type{mesh.TypeCluster, mesh.TypeEndpoint}

// core is the state machine of the client. It has no clock, no goroutine and
// no I/O: every input comes with the time, and what is to be done is in out.
// Only the Applier is called from inside, because its verdict decides the answer.
type core struct {
	limits
	node    *corev3.Node
	applier Applier
	random  *rand.Rand

	subs    map[string]*sub
	entries map[mesh.ResourceName]*entry
	hosts   map[string]*host
	seq     uint64
	// unknown counts the subs that are unknown.
	unknown int

	// The stream. asked holds the types that had a request on it: an
	// acknowledgement of any other type would subscribe it by wildcard.
	open     bool
	asked    map[mesh.Type]bool
	heardAt  time.Time
	heardAny bool
	// mute counts the streams in a row that the watchdog gave up before they brought anything.
	mute int
	// offerNothing makes the next stream offer no initial versions.
	offerNothing bool

	// silentRung is how far the ladder of a silent stream was climbed, at rungAt;
	// probing is what its first rung asked for.
	silentRung int
	rungAt     time.Time
	probing    []*entry
	// tokens are the reconnects that single unanswered names may still cost.
	tokens  int
	tokenAt time.Time

	subscribe, unsubscribe map[mesh.Type]map[string]bool
	out                    output
}

// output is what an input leads to.
type output struct {
	requests []*discoveryv3.DeltaDiscoveryRequest
	answers  []answer
	rejected []rejection
	resolve  []string
	// rungs counts what the watchdog did, by rung name.
	rungs []string
	// report asks for a load report now, save for the state file to be written.
	report, save bool
	// reconnect, where not "", asks for another connection and says why; next for another server.
	reconnect string
	next      bool
}

// rejection is a refused resource, for the log and the counters.
type rejection struct {
	name          mesh.ResourceName
	version, text string
}

// sub is one cluster that is wanted.
type sub struct {
	name   string
	pinned bool
	usedAt time.Time
	// unknown: neither pinned nor in force. count keeps it and core.unknown.
	unknown bool
	// services are the assignments subscribed for it: one, and during a change
	// of service_name the old one too, until the new one is in force.
	services []string

	inForce *Cluster
	// applied are the forms that inForce was made from.
	applied [2]uint64
	hostSeq uint64
	// kept are the resources that inForce was made from, for the state file.
	kept []*discoveryv3.Resource

	distrustAt time.Time
	distrusted bool
}

// held is what the control plane said of a resource.
type held struct {
	// known is false until there is an answer; absent is the answer "there is none",
	// which holds only on the stream that gave it.
	known, absent bool
	content       decoded
	resource      *discoveryv3.Resource
	// seq tells forms apart, equal bytes included when they were forgotten between.
	seq      uint64
	fromDisk bool
}

// entry is one subscribed resource.
type entry struct {
	name  mesh.ResourceName
	users map[string]*sub
	held
	confirmedAt time.Time
	// refusal is why the newest form was refused; "" once a good one came.
	refusal string
	// unoffered keeps its version out of initial_resource_versions.
	unoffered bool
	// forgotten makes the next form count as new even when it is the same.
	forgotten bool

	// askedAt is when the oldest unanswered request went out; zero when none is.
	askedAt time.Time
	// wait is how long the answer may take, rung how often it did not come.
	wait time.Duration
	rung int
	// dueAt is when it must be asked for again.
	dueAt time.Time
}

func newCore(l limits, node *corev3.Node, applier Applier, random *rand.Rand) *core {
	c := &core{
		limits: l, node: node, applier: applier, random: random, tokens: maxTokens,
		subs:    map[string]*sub{},
		entries: map[mesh.ResourceName]*entry{},
		hosts:   map[string]*host{},
	}
	c.forgetStream()
	return c
}

func (c *core) forgetStream() {
	c.open, c.heardAny = false, false
	c.asked = map[mesh.Type]bool{}
	c.subscribe = map[mesh.Type]map[string]bool{}
	c.unsubscribe = map[mesh.Type]map[string]bool{}
	for _, t := range usedTypes {
		c.subscribe[t], c.unsubscribe[t] = map[string]bool{}, map[string]bool{}
	}
}

// take hands over what is to be done, and forgets it.
func (c *core) take() output {
	o := c.out
	c.out = output{}
	return o
}

// Subscribe wants a cluster, now used; pinned means for ever.
func (c *core) Subscribe(now time.Time, name string, pinned bool) {
	s := c.want(now, name)
	s.pinned = s.pinned || pinned
	s.usedAt = now
	c.count(s)
	c.flush()
}

// count keeps the number of unknown names, whenever s may have become one or ceased to be.
func (c *core) count(s *sub) {
	is := c.subs[s.name] == s && !s.pinned && s.inForce == nil
	switch {
	case is && !s.unknown:
		c.unknown++
	case !is && s.unknown:
		c.unknown--
	}
	s.unknown = is
}

func (c *core) want(now time.Time, name string) *sub {
	s := c.subs[name]
	if s == nil {
		s = &sub{name: name, usedAt: now, services: []string{name}}
		c.subs[name] = s
		c.retain(now, mesh.ResourceName{Type: mesh.TypeCluster, Name: name}, s)
		c.retain(now, mesh.ResourceName{Type: mesh.TypeEndpoint, Name: name}, s)
		c.publish(s)
	}
	return s
}

// Used tells when a cluster was last asked for.
func (c *core) Used(name string, at time.Time) {
	if s := c.subs[name]; s != nil && at.After(s.usedAt) {
		s.usedAt = at
	}
}

// Opened says that a stream is ready for requests.
func (c *core) Opened(now time.Time) {
	c.forgetStream()
	c.open, c.heardAt, c.rungAt = true, now, now
	for _, e := range c.entries {
		offered := c.offers(e)
		e.askedAt = time.Time{} // on another stream
		if !offered {
			c.await(now, e)
		}
		c.subscribe[e.name.Type][e.name.Name] = true
	}
	c.flush()
	if len(c.asked) == 0 {
		c.announce()
	}
	c.offerNothing = false
}

// helloName is a cluster that nobody has.
const helloName = "freshmesh.dev/hello"

// announce says who we are where there is nothing to ask: the node is known from
// the first request alone, and without one the control plane could not tell that
// we are here. A first request that subscribes to no name is a wildcard, whatever it
// unsubscribes from, to some control planes (go-control-plane 0.14.0). So a name is
// subscribed for a moment, and from then on no names are none (xDS protocol,
// "How the client specifies what resources to return").
func (c *core) announce() {
	c.request(mesh.TypeCluster).ResourceNamesSubscribe = []string{helloName}
	c.request(mesh.TypeCluster).ResourceNamesUnsubscribe = []string{helloName}
}

// offers tells whether a resource's version goes into initial_resource_versions.
// What came from the disk does not: versions are hashes, so offering them would
// be correct, but then the control plane would be silent where nothing changed,
// and nothing would tell that it still vouches for what the file says. It costs
// one full answer for the clusters in use, once in the life of a process.
func (c *core) offers(e *entry) bool {
	return !c.offerNothing && !e.unoffered && !e.fromDisk && e.known && !e.absent && e.askedAt.IsZero()
}

// Closed says that the stream has ended. Nothing leaves force; only "there is no such thing" is forgotten.
func (c *core) Closed() {
	c.forgetStream()
	for _, e := range c.entries {
		if !e.absent {
			continue
		}
		e.held = held{}
		for _, s := range e.users {
			c.publish(s)
		}
	}
}

// retain makes s a user of a resource, and asks for it when it is new.
func (c *core) retain(now time.Time, name mesh.ResourceName, s *sub) *entry {
	e := c.entries[name]
	if e == nil {
		e = &entry{name: name, users: map[string]*sub{}, wait: c.answer}
		c.entries[name] = e
		c.ask(now, e)
	}
	e.users[s.name] = s
	return e
}

// release is the opposite; the last user's going ends the subscription.
func (c *core) release(name mesh.ResourceName, s *sub) {
	e := c.entries[name]
	if e == nil {
		return
	}
	delete(e.users, s.name)
	if len(e.users) > 0 {
		return
	}
	delete(c.entries, name)
	delete(c.subscribe[name.Type], name.Name)
	if c.asked[name.Type] {
		c.unsubscribe[name.Type][name.Name] = true
	}
}

// drop ends a subscription altogether.
func (c *core) drop(s *sub) {
	delete(c.subs, s.name)
	c.count(s)
	c.release(mesh.ResourceName{Type: mesh.TypeCluster, Name: s.name}, s)
	for _, n := range s.services {
		c.release(mesh.ResourceName{Type: mesh.TypeEndpoint, Name: n}, s)
	}
	if s.inForce != nil {
		c.applier.Remove(s.name)
		c.out.save = true
	}
	c.out.answers = append(c.out.answers, answer{status: ClusterStatus{Name: s.name}, dropped: true})
}
