package model

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmesh/freshmesh/internal/bubble"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/test/model/oracle"
)

var policy = oracle.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 5 * time.Second}

// serviceNames are those of the services that may exist.
var serviceNames = [...]string{"a", "b", "c", "d"}

func resourceName(service string) string { return service + ".default.svc.cluster.local:8080" }

// rig is one history under way, in a bubble.
type rig struct {
	t       testing.TB
	source  *bubble.Source
	control *bubble.Control
	world   *oracle.World
	// services: name → its form; endpoints stay while the service does not exist.
	services  map[string]*oracle.Service
	endpoints map[string][]oracle.Endpoint
	clients   []*client
	// resting is what is demanded of all clients now; 0 for nothing.
	resting int
	// log is what happened; wrong the differences found, after which nothing goes on.
	log   []string
	wrong []string
}

func newRig(t testing.TB, nodes []nodeSpec) *rig {
	t.Helper()
	r := &rig{
		t: t, source: bubble.NewSource(), world: oracle.NewWorld(),
		services: map[string]*oracle.Service{}, endpoints: map[string][]oracle.Endpoint{},
	}
	r.control = bubble.Start(t, r.source)
	versions := map[[3]string]string{}
	for i, spec := range nodes {
		r.clients = append(r.clients, &client{
			t: t, legacy: spec.Legacy, versions: versions,
			node: oracle.NewNode(r.world, policy, fmt.Sprintf("n%d", i), spec.Zone, spec.Delta),
		})
	}
	return r
}

func (r *rig) note(format string, args ...any) { r.log = append(r.log, fmt.Sprintf(format, args...)) }

func (r *rig) differ(who string, wrong []string) {
	for _, w := range wrong {
		r.wrong = append(r.wrong, who+": "+w)
	}
}

// end stops everything in the bubble.
func (r *rig) end() {
	for _, c := range r.clients {
		c.close()
	}
}

// setService makes a service exist, or not for nil.
func (r *rig) setService(name string, s *oracle.Service) {
	r.services[name] = s
	if s == nil {
		r.source.Delete(mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: name})
		r.world.Set(resourceName(name), nil)
		return
	}
	r.source.Put(&mesh.Service{
		Meta:        mesh.Meta{Key: mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: name}},
		Ports:       []mesh.ServicePort{{Name: "http", Port: 8080, Protocol: "TCP", AppProtocol: "http"}},
		Annotations: map[string]string{"lb-policy": s.Policy, "connect-timeout": s.Timeout},
	})
	r.tell(name)
}

// setEndpoints changes the slice of a service.
func (r *rig) setEndpoints(name string, all []oracle.Endpoint) {
	r.endpoints[name] = all
	slice := &mesh.EndpointSlice{
		Meta:    mesh.Meta{Key: mesh.Key{Kind: mesh.KindEndpointSlice, Namespace: "default", Name: name + "-1"}},
		Service: name, AddressType: "IPv4", Ports: []mesh.SlicePort{{Name: "http", Port: 9000, Protocol: "TCP"}},
	}
	for _, e := range all {
		ready := !e.Draining
		at := mesh.SliceEndpoint{
			Addresses: []netip.Addr{netip.MustParseAddrPort(e.Address).Addr()}, Ready: &ready, Terminating: &e.Draining,
			Zone: e.Zone, Hostname: e.Hostname,
		}
		if e.For != "" {
			at.ForZones = []string{e.For}
		}
		slice.Endpoints = append(slice.Endpoints, at)
	}
	r.source.Put(slice)
	r.tell(name)
}

func (r *rig) tell(name string) {
	if s := r.services[name]; s != nil {
		r.world.Set(resourceName(name), &oracle.Service{Policy: s.Policy, Timeout: s.Timeout, Endpoints: r.endpoints[name]})
	}
}

// settle lets everything that follows from the last step happen, and judges it.
func (r *rig) settle() {
	for range 50 {
		if len(r.wrong) > 0 {
			return
		}
		if !r.pump() {
			r.world.Settle()
			r.judge()
			r.pump() // being asked, a stream's owner looks at the time, too
			return
		}
	}
	r.differ("all", []string{"no rest: responses are answered, and more come, 50 times"})
}

// pump takes what has arrived and answers as the clients do; false when nothing happened.
func (r *rig) pump() bool {
	synctest.Wait()
	moved := false
	for _, c := range r.clients {
		if c.link == nil {
			if !c.away && r.wanting(c) {
				c.open(r.control)
				moved = true
			}
			continue
		}
		moved = r.take(c) || moved
		if c.link != nil && !c.deaf() {
			moved = r.answer(c) || moved
		}
	}
	return moved
}

func (r *rig) wanting(c *client) bool {
	for _, typ := range oracle.Types {
		if !c.node.Wants(typ).Empty() {
			return true
		}
	}
	return false
}

// take moves what has arrived to the pending responses, and sees the stream's end.
func (r *rig) take(c *client) bool {
	all, ended := c.arrived.take()
	now := time.Now()
	for _, x := range all {
		for name, version := range x.versions {
			c.versions[[3]string{x.Type, name, x.Resources[name]}] = version
		}
		c.pending = append(c.pending, x)
		wrong := c.node.Receive(x.Response, c.deaf(), x.at)
		r.note("    %s <- %s", c.node.ID, x)
		r.differ(c.node.ID, wrong)
	}
	if ended == nil {
		if !c.deaf() {
			c.node.Heard()
		}
		return len(all) > 0
	}
	r.note("    %s <- end: %v", c.node.ID, ended)
	if !c.gone {
		r.differ(c.node.ID, c.node.Reset(now))
	}
	c.close()
	return true
}

func (x response) String() string {
	words := []string{x.Type}
	for _, name := range slices.Sorted(maps.Keys(x.Resources)) {
		content := x.Resources[name]
		if len(content) > 200 {
			content = content[:200] + "…"
		}
		words = append(words, "+"+name[:1]+"="+strings.ReplaceAll(content, name, "self"))
	}
	for _, name := range x.Removed {
		words = append(words, "-"+name[:1])
	}
	return strings.Join(words, " ")
}

// answer answers what a client's mode lets it; false when that is nothing.
func (r *rig) answer(c *client) bool {
	before := len(c.pending)
	if before == 0 {
		return false
	}
	switch c.mode {
	case prompt:
		c.answer(true, false)
	case late:
		if time.Since(c.pending[0].at) < 3*time.Second {
			return false
		}
		c.answer(true, false)
	case nackAll:
		c.answer(false, false)
	case nackSome:
		c.turn++
		c.answer(c.turn%2 == 0, true)
	case never, byHand, modes:
	}
	if len(c.pending) < before {
		r.note("    %s answers by itself", c.node.ID)
	}
	return len(c.pending) < before
}

// judge compares the audit with the oracle.
func (r *rig) judge() {
	audit, err := r.control.Server.Audit(context.Background(), "")
	if err != nil {
		r.t.Fatalf("audit: %v", err)
	}
	now := time.Now()
	shown := map[string]oracle.Seen{}
	for _, n := range audit.Nodes {
		seen := oracle.Seen{State: string(n.State)}
		for _, t := range n.Types {
			st := oracle.SeenType{Type: t.Type, State: string(t.State), Behind: t.Behind, Equal: t.HeldVersion == t.CurrentVersion}
			for _, b := range t.BehindResources {
				st.Names = append(st.Names, b.Name)
			}
			seen.Types = append(seen.Types, st)
		}
		shown[string(n.ID)] = seen
	}
	for _, c := range r.clients {
		seen, known := shown[c.node.ID]
		switch {
		case known:
			r.differ(c.node.ID, c.node.Judge(seen, now))
		case c.node.IsOpen() && !c.stalled && c.introduced:
			r.differ(c.node.ID, []string{"has a stream, and is not shown"})
		}
		r.differ(c.node.ID, c.node.Overdue(now))
		if r.resting > 0 && known {
			r.differ(c.node.ID, c.node.AtRest(seen, r.resting == restWithRefusals))
		}
	}
}

// pass lets time go by; clients live meanwhile.
func (r *rig) pass(d time.Duration) {
	step := 500 * time.Millisecond
	if d > 15*time.Second {
		step = time.Second
	}
	for left := d; left > 0 && len(r.wrong) == 0; left -= step {
		time.Sleep(min(step, left)) // bubble time
		r.settle()
	}
}

func endpoint(i int, hinted, draining bool, hostname string) oracle.Endpoint {
	e := oracle.Endpoint{Address: "10.0.0." + strconv.Itoa(i+1) + ":9000", Zone: zones[i%2], Draining: draining, Hostname: hostname}
	if hinted {
		e.For = e.Zone
	}
	return e
}

var zones = [...]string{"za", "zb"}
