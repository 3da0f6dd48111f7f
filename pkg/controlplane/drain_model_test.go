package controlplane_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// client is a proxy process with at most one stream: it keeps what it applied
// when that ends, and goes on using it.
type client struct {
	id       string
	protocol xdstest.Protocol
	stream   *xdstest.Stream // nil while it has none
	leftAt   time.Time
	// wants: cluster → the form in force; nil for none yet.
	wants map[string]*form
	// asked are those that it has subscribed to on this stream.
	asked  map[string]bool
	unread []*xdstest.Response
	// refused: the responses that it will refuse; the others it applied when they arrived, long before it says so.
	refused map[*xdstest.Response]bool
}

type form struct {
	usable  map[string]bool
	version string
}

func formOf(t *testing.T, r xdstest.Received) *form {
	t.Helper()
	var a endpointv3.ClusterLoadAssignment
	if err := proto.Unmarshal(r.Body, &a); err != nil {
		t.Fatal(err)
	}
	f := &form{usable: map[string]bool{}, version: string(mesh.VersionOf(r.Body))}
	for _, l := range a.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			at := e.GetEndpoint().GetAddress().GetSocketAddress()
			if e.GetHealthStatus() != corev3.HealthStatus_DRAINING {
				f.usable[at.GetAddress()] = true
			}
		}
	}
	return f
}

func (c *client) subscribe(name string, withVersion bool) {
	f := c.wants[name]
	c.asked[name] = true
	if c.protocol == xdstest.Delta && withVersion && f != nil {
		c.stream.Send(xdstest.Request{Type: mesh.TypeEndpoint, Subscribe: []string{name}, Initial: map[string]string{name: f.version}})
		return
	}
	if c.protocol == xdstest.Delta {
		c.stream.Subscribe(mesh.TypeEndpoint, name)
		return
	}
	c.stream.Subscribe(mesh.TypeEndpoint, slices.Sorted(maps.Keys(c.asked))...) // the whole list
}

// ready: in the state of the world a changed subscription has the nonce of the
// last response, and so acknowledges it; it comes after the answer.
func (c *client) ready() bool { return c.protocol == xdstest.Delta || len(c.unread) == 0 }

func (c *client) answer() {
	r := c.unread[0]
	c.unread = c.unread[1:]
	if c.refused[r] {
		c.stream.Nack(r, "no")
		return
	}
	c.stream.Ack(r)
}

// take takes what has arrived.
func (c *client) take(t *testing.T, r *xdstest.Response, refuse bool) {
	t.Helper()
	c.unread = append(c.unread, r)
	if refuse {
		c.refused[r] = true
		return
	}
	for _, received := range r.Resources {
		if _, wanted := c.wants[received.Name]; wanted {
			c.wants[received.Name] = formOf(t, received)
		}
	}
	for _, name := range r.Removed {
		if _, wanted := c.wants[name]; wanted {
			c.wants[name] = nil
		}
	}
}

// uses tells whether requests of the process may go to an address.
func (c *client) uses(ip string) bool {
	for _, f := range c.wants {
		if f != nil && f.usable[ip] {
			return true
		}
	}
	return false
}

var modelClusters = []string{"s0", "s1"}

func clusterName(service string) string { return service + ".default.svc.cluster.local:8080" }

// drainModel is a mesh at random, and what is really in use in it.
type drainModel struct {
	t       *testing.T
	random  *rand.Rand
	source  *objects
	plane   plane
	clients []*client
	// now and before: service → the endpoints that it has, and had before.
	now, before map[string][]at
	// over: nothing is refused any more.
	over bool
}

func (m *drainModel) step() {
	switch c := m.clients[m.random.IntN(len(m.clients))]; m.random.IntN(12) {
	case 0, 1:
		m.change()
	case 2:
		time.Sleep(time.Duration(m.random.IntN(3000)) * time.Millisecond) // bubble time
	case 3:
		if c.stream != nil && m.random.IntN(2) == 0 {
			c.stream.Close()
		}
	case 4, 5, 6:
		if c.stream == nil {
			c.stream = m.plane.open(m.t, c.protocol, c.id)
			c.asked = map[string]bool{}
		}
		if c.stream.Ended() == nil && c.ready() {
			c.subscribe(clusterName(modelClusters[m.random.IntN(2)]), m.random.IntN(2) == 0)
			for name := range c.asked {
				if _, wanted := c.wants[name]; !wanted {
					c.wants[name] = nil
				}
			}
		}
	case 7:
		if name := clusterName(modelClusters[m.random.IntN(2)]); c.stream != nil && c.stream.Ended() == nil && c.ready() && c.asked[name] && len(c.asked) > 1 {
			delete(c.asked, name)
			delete(c.wants, name)
			c.stream.Unsubscribe(mesh.TypeEndpoint, name)
		}
	default:
		if len(c.unread) > 0 && c.stream.Ended() == nil {
			c.answer()
		}
	}
	m.listen()
}

// change changes a service's endpoints, or takes the service away.
func (m *drainModel) change() {
	service := modelClusters[m.random.IntN(2)]
	if m.random.IntN(6) == 0 {
		m.source.remove(key(mesh.KindEndpointSlice, service+"-1"))
		m.source.remove(key(mesh.KindService, service))
		return
	}
	var endpoints []at
	for i := range 3 {
		if n := m.random.IntN(3); n > 0 {
			endpoints = append(endpoints, at{fmt.Sprint("p", i), fmt.Sprint("10.0.0.", i), n == 2})
		}
	}
	if m.random.IntN(3) == 0 {
		endpoints = m.before[service] // a change is taken back
	}
	m.before[service], m.now[service] = m.now[service], endpoints
	m.source.put(serviceOf(service), sliceOf(service, endpoints...))
}

// listen takes what has arrived, and notes which streams have ended.
func (m *drainModel) listen() {
	synctest.Wait()
	for _, c := range m.clients {
		if c.stream == nil {
			continue
		}
		for _, r := range c.stream.Arrived() {
			c.take(m.t, r, !m.over && m.random.IntN(6) == 0)
		}
		if c.stream.Ended() != nil {
			c.stream, c.leftAt, c.unread = nil, time.Now(), nil
		}
	}
}

// check: what is called drained is used by no process, but for one that has had no stream for 30 s.
func (m *drainModel) check(history string) (drained int) {
	for i := range 3 {
		ip := fmt.Sprint("10.0.0.", i)
		r, err := m.plane.Drain(m.t.Context(), drain.Target{Endpoint: drain.Endpoint{Address: netip.MustParseAddr(ip), Port: 8080}}, 0)
		if err != nil {
			m.t.Fatal(err)
		}
		if !r.Drained {
			continue
		}
		drained++
		for _, c := range m.clients {
			if !c.uses(ip) || !c.leftAt.IsZero() && time.Since(c.leftAt) >= drain.Grace {
				continue
			}
			m.t.Fatalf("%s: %s is called drained, and %s (%s, stream %v, left %v ago) uses it", history, ip, c.id, c.protocol, c.stream != nil, time.Since(c.leftAt))
		}
	}
	return drained
}

// TestDrainAgainstTheTruth: random meshes of proxies that come and go, refuse,
// are slow, and keep what they have. "Drained" is never said of what one of them uses,
// and is said in the end.
func TestDrainAgainstTheTruth(t *testing.T) {
	drained := 0
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			m := &drainModel{t: t, random: rand.New(rand.NewPCG(seed, 1)), source: newObjects(), now: map[string][]at{}, before: map[string][]at{}}
			m.plane = startPlane(t, m.source)
			for i := range 3 {
				m.clients = append(m.clients, &client{id: fmt.Sprint("n", i), protocol: []xdstest.Protocol{xdstest.Delta, xdstest.SotW}[i%2], wants: map[string]*form{}, refused: map[*xdstest.Response]bool{}})
			}
			m.change()
			time.Sleep(drain.Grace) // bubble time
			for step := range 120 {
				m.step()
				drained += m.check(fmt.Sprintf("seed %d, step %d", seed, step))
			}
			m.finish()
		})
	}
	if drained < 100 {
		t.Errorf("only %d times drained: the test shows little", drained)
	}
}

// finish lets everybody take the newest, and the endpoints go.
func (m *drainModel) finish() {
	m.over = true
	for _, service := range modelClusters {
		// What is new is sent also to who refused what was before.
		m.source.put(serviceOf(service), sliceOf(service, at{pod: "last", ip: "10.0.0.9"}))
	}
	for m.listen(); slices.ContainsFunc(m.clients, func(c *client) bool { return len(c.unread) > 0 }); m.listen() {
		for _, c := range m.clients {
			for len(c.unread) > 0 && c.stream != nil {
				c.answer()
			}
		}
	}
	for i := range 3 {
		want(m.t, "in the end", ask(m.t, m.plane.Server, drain.Target{Endpoint: mustEndpoint(fmt.Sprintf("10.0.0.%d:8080", i))}, drain.Grace), "drained")
	}
}
