package model

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/freshmesh/freshmesh/test/model/oracle"
)

// nodeSpec is what a client is from the beginning.
type nodeSpec struct {
	Delta, Legacy bool
	Zone          string
}

// mode is how a client answers.
type mode int

const (
	prompt mode = iota
	late        // after 3 s
	never
	nackAll
	nackSome // every other response; of those it refuses, a delta client takes one half
	byHand   // only by steps
	modes
)

// kind is what a step does.
type kind int

const (
	nothing kind = iota // what a step shrinks to
	putService
	putEndpoints
	removeService
	flip
	subscribe
	unsubscribe
	wildcard
	resubscribe
	phantom
	spontaneous
	duplicateAck
	wrongNonce
	setMode
	ackOne
	nackOne
	cut
	comeBack
	pause
	stall
	hear
	restart
	pass
	kinds
)

var kindNames = [kinds]string{
	"nothing", "put service", "put endpoints", "remove service", "flip", "subscribe", "unsubscribe", "wildcard", "resubscribe", "phantom unsubscribe",
	"spontaneous request", "duplicate ACK", "wrong nonce", "mode", "ACK", "NACK", "cut", "come back", "pause", "stall", "hear", "restart", "pass",
}

// weights: how often each kind is drawn, against the others.
var weights = [kinds]int{1, 4, 8, 2, 2, 6, 3, 2, 2, 1, 1, 2, 2, 6, 3, 3, 3, 3, 1, 1, 2, 1, 10}

// step is one step of a history: its numbers mean what its kind makes of them.
type step struct {
	Kind    kind
	A, B, C int
}

// String gives what the step does, for a person.
func (s step) String() string { return fmt.Sprintf("%s %d %d %d", kindNames[s.Kind], s.A, s.B, s.C) }

func steps() *rapid.Generator[[]step] {
	var bag []kind
	for k, n := range weights {
		for range n {
			bag = append(bag, kind(k))
		}
	}
	number := rapid.IntRange(0, 59)
	one := rapid.Custom(func(t *rapid.T) step {
		return step{Kind: rapid.SampledFrom(bag).Draw(t, "kind"), A: number.Draw(t, "a"), B: number.Draw(t, "b"), C: number.Draw(t, "c")}
	})
	// rapid would draw few steps most of the time, and little comes of few.
	return rapid.SliceOfN(one, 50, 80)
}

// do takes one step, and lets what follows from it happen.
func (r *rig) do(s step) {
	service := serviceNames[s.A%len(serviceNames)]
	c := r.clients[s.A%len(r.clients)]
	switch s.Kind {
	case putService:
		r.setService(service, serviceForm(s.B))
	case putEndpoints:
		r.setEndpoints(service, endpointForm(s.B, s.C))
	case removeService:
		if r.services[service] == nil {
			return
		}
		r.setService(service, nil)
	case flip:
		r.flip(service, s)
	case restart:
		r.restart()
		r.settle()
		return
	case pass:
		r.pass(durations[s.B%len(durations)])
		return
	case setMode:
		c.mode = mode(s.B % int(modes))
	case cut, comeBack, pause, stall, hear:
		r.fault(c, s)
	case subscribe, unsubscribe, wildcard, resubscribe, phantom, spontaneous, duplicateAck, wrongNonce, ackOne, nackOne:
		r.ask(c, s)
	case nothing, kinds:
		return
	}
	if s.Kind != flip {
		r.world.Settle()
	}
	r.settle()
}

var durations = [...]time.Duration{
	100 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 6 * time.Second, 11 * time.Second, 20 * time.Second, time.Minute,
}

func serviceForm(n int) *oracle.Service {
	return &oracle.Service{
		Policy:  []string{"round-robin", "ring-hash"}[n%2],
		Timeout: []string{"1s", "2s", "2s"}[n/2%3],
	}
}

// endpointForm makes a few endpoints, so that forms come back; some are large, so that flow control matters.
func endpointForm(n, shape int) []oracle.Endpoint {
	var all []oracle.Endpoint
	for i := range 3 {
		if n>>i&1 == 1 {
			all = append(all, endpoint(i, shape%3 == 0, shape%5 == i, ""))
		}
	}
	if shape%20 == 19 {
		for i := range 70 {
			all = append(all, endpoint(10+i, false, false, strings.Repeat("x", 1000)))
		}
	}
	return all
}

// flip changes a service and changes it back, with nothing between for anybody to see it, or not quite back.
func (r *rig) flip(service string, s step) {
	if r.services[service] == nil {
		return
	}
	was := r.endpoints[service]
	for i := range 2 {
		r.setEndpoints(service, endpointForm(s.B+i, s.C))
	}
	if s.C%2 == 0 {
		r.setEndpoints(service, was)
	}
}

// restart ends the control plane and starts the next one, which knows nothing.
func (r *rig) restart() {
	for _, c := range r.clients {
		if c.stalled {
			c.close()
		}
		c.gone = true
	}
	r.control.Stop()
	synctest.Wait()
	for _, c := range r.clients {
		if c.link != nil {
			r.take(c)
			c.close()
		}
	}
	r.control.Start()
}

func (r *rig) fault(c *client, s step) {
	switch {
	case s.Kind == cut:
		c.close()
		c.away = s.B%2 == 0
		if s.B%4 < 2 {
			c.node.Forget()
		}
	case s.Kind == comeBack:
		c.away = false
	case c.link == nil:
	case s.Kind == hear:
		r.hear(c)
	case c.deaf():
	case s.Kind == pause:
		c.paused = true
		<-c.gate
		c.node.Deaf(true, time.Now())
	case s.Kind == stall:
		c.stalled = true
		c.link.Stall()
		c.node.Deaf(true, time.Now())
	}
}

// hear ends what keeps a client from hearing, and takes all that has waited.
func (r *rig) hear(c *client) {
	if !c.deaf() {
		return
	}
	if c.paused {
		c.gate <- struct{}{}
	} else {
		c.link.Resume()
	}
	synctest.Wait()
	r.take(c)
	c.paused, c.stalled = false, false
	c.node.Deaf(false, time.Now())
}

// ask does what a client does by itself on its stream.
func (r *rig) ask(c *client, s step) {
	if c.deaf() {
		return
	}
	typ := oracle.Types[s.B%len(oracle.Types)]
	if c.link == nil {
		if c.away || s.Kind != subscribe && s.Kind != wildcard {
			return
		}
		c.open(r.control)
		synctest.Wait()
		r.take(c)
	}
	want := c.node.Wants(typ)
	known := slices.DeleteFunc(want.List(), func(n string) bool { return n == "*" })
	_, asked := c.named[typ]
	switch {
	case s.Kind == subscribe:
		c.change(typ, some(s.C), nil)
	case s.Kind == wildcard && want.Wildcard:
		c.change(typ, nil, []string{"*"})
	case s.Kind == wildcard:
		c.change(typ, []string{"*"}, nil)
	case s.Kind == ackOne:
		c.answer(true, false)
	case s.Kind == nackOne:
		c.answer(false, s.C%2 == 0)
	case !asked:
	case s.Kind == unsubscribe && len(known) > 0:
		c.change(typ, nil, known[:1+s.C%len(known)])
	case s.Kind == resubscribe && c.node.Delta && len(known) > 0:
		c.change(typ, known[:1+s.C%len(known)], nil)
	case s.Kind == phantom && c.node.Delta:
		c.change(typ, nil, []string{"phantom"})
	case s.Kind == spontaneous && c.node.Delta:
		c.send(&request{typ: typ})
	case s.Kind == spontaneous:
		c.rename(typ, want, c.answered[typ])
	case s.Kind == duplicateAck && c.node.Delta:
		c.send(&request{typ: typ, nonce: c.answered[typ]})
	case s.Kind == duplicateAck:
		c.rename(typ, want, c.answered[typ])
	case s.Kind == wrongNonce && c.node.Delta:
		c.send(&request{typ: typ, nonce: "never-sent", err: []string{"", "no"}[s.C%2]})
	case s.Kind == wrongNonce:
		c.send(&request{typ: typ, nonce: "never-sent", names: want.List(), err: []string{"", "no"}[s.C%2]})
	}
}

// some gives one to three names, of services and of none.
func some(n int) []string {
	var names []string
	for i := range serviceNames {
		if n>>i&1 == 1 {
			names = append(names, resourceName(serviceNames[i]))
		}
	}
	if n%5 == 0 || len(names) == 0 {
		names = append(names, resourceName("missing"))
	}
	return names
}
