package xds_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// drainRig is a rig whose History is told of what is published.
type drainRig struct {
	*rig
	history *drain.History
}

func newDrainRig(t *testing.T) drainRig {
	t.Helper()
	r := drainRig{newRig(t, nil), drain.NewHistory(time.Now(), 0)}
	time.Sleep(time.Second) // bubble time
	return r
}

func (r drainRig) publish(u mesh.Update) {
	r.history.Note(u, r.store.Snapshot().Generation()+1, time.Now())
	r.store.Publish(u, time.Now())
}

// waits gives what keeps 10.0.0.1:80 in use, as "REASON NODE RESOURCE".
func (r drainRig) waits() string {
	r.t.Helper()
	recall := r.history.Recall([]drain.Endpoint{{Address: netip.MustParseAddr("10.0.0.1"), Port: 80}})
	streams, complete, _ := r.server.Drains(r.t.Context(), []drain.Recall{recall}, drain.NewReadings())
	if !complete {
		r.t.Fatal("a stream did not answer")
	}
	report, _ := drain.Decide(drain.Facts{Now: time.Now(), ReadyAt: time.Now().Add(-time.Hour), Known: true, Streams: streams[0]})
	var out []string
	for _, w := range report.Waits {
		out = append(out, string(w.Reason)+" "+string(w.Node)+" "+w.Cluster)
	}
	return strings.Join(out, ", ")
}

func (r drainRig) want(what, want string) {
	r.t.Helper()
	if got := r.waits(); got != want {
		r.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func assignmentOf(name string, usable bool) *endpointv3.ClusterLoadAssignment {
	status := corev3.HealthStatus_DRAINING
	if usable {
		status = corev3.HealthStatus_HEALTHY
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: []*endpointv3.LbEndpoint{{HealthStatus: status, HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
			}}},
		}}}},
	}}}
}

func put(t *testing.T, kind mesh.Type, name string, m proto.Message) mesh.Update {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return mesh.Update{Put: []mesh.Resource{{Type: kind, Name: name, Body: b, Static: kind == mesh.TypeCluster}}}
}

func remove(kind mesh.Type, name string) mesh.Update {
	return mesh.Update{Remove: []mesh.Removal{{ResourceName: mesh.ResourceName{Type: kind, Name: name}}}}
}

// TestDrainsInlineCluster: a static cluster may have its endpoints inside, and a
// wildcard subscription covers it.
func TestDrainsInlineCluster(t *testing.T) {
	for _, protocol := range []xdstest.Protocol{xdstest.Delta, xdstest.SotW} {
		inBubble(t, func(t *testing.T) {
			r := newDrainRig(t)
			r.publish(put(t, mesh.TypeCluster, "c", &clusterv3.Cluster{Name: "c", LoadAssignment: assignmentOf("c", true)}))
			s := r.open(protocol, "n")
			s.Subscribe(mesh.TypeCluster)
			s.Expect()
			r.want("not answered", "pending n , pending n c"[map[bool]int{true: 0, false: len("pending n , ")}[protocol == xdstest.SotW]:])
			s.Close()
			time.Sleep(drain.Grace) // bubble time
			s = r.open(protocol, "n")
			s.Subscribe(mesh.TypeCluster)
			s.Ack(s.Expect())
			s.Silent()
			r.want("held", "listed n c")
			r.publish(remove(mesh.TypeCluster, "c"))
			gone := s.Expect()
			r.want("removal sent", "pending n c")
			s.Ack(gone)
			s.Silent()
			r.want("removal held", "")
		})
	}
}

// TestDrainsByView: what counts is the form that the node's own view has.
func TestDrainsByView(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newDrainRig(t)
		form := func(usable func(zone string) bool) mesh.Update {
			shape := func(v mesh.View) []byte {
				b, err := proto.Marshal(assignmentOf("c", usable(v.Zone)))
				if err != nil {
					t.Error(err)
				}
				return b
			}
			return mesh.Update{Put: []mesh.Resource{{Type: mesh.TypeEndpoint, Name: "c", Body: shape(mesh.View{}), ShapedBy: mesh.ByZone, Shape: shape}}}
		}
		r.publish(form(func(string) bool { return true }))
		var streams []*xdstest.Stream
		for _, zone := range []string{"a", "b"} {
			s := xdstest.Open(t, r.conn, xdstest.Delta, &corev3.Node{Id: zone, Locality: &corev3.Locality{Zone: zone}})
			s.Subscribe(mesh.TypeEndpoint, "c")
			s.Ack(s.Expect())
			streams = append(streams, s)
		}
		streams[0].Silent()
		r.want("both", "listed a c, listed b c")
		r.publish(form(func(zone string) bool { return zone == "a" }))
		streams[1].Ack(streams[1].Expect())
		streams[1].Silent()
		r.want("zone a only", "listed a c")
		r.publish(remove(mesh.TypeEndpoint, "c"))
		streams[1].Expect()
		r.want("a has not heard of the end; b has had it drained before", "pending a c, pending b c")
	})
}

// TestDrainsHeldFromElsewhere: a client may come with something from before the
// server's start; until it acknowledges on this stream, it may hold any endpoint.
func TestDrainsHeldFromElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newDrainRig(t)
		r.publish(put(t, mesh.TypeEndpoint, "other", &endpointv3.ClusterLoadAssignment{ClusterName: "other"}))
		s := r.open(xdstest.Delta, "n")
		s.Send(xdstest.Request{Type: mesh.TypeEndpoint, Subscribe: []string{"other"}, Initial: map[string]string{"other": "0123456789abcdef"}})
		first := s.Expect()
		r.want("not answered", "pending n other")
		s.Nack(first, "no")
		s.Silent()
		r.want("refused", "rejected n other")
		r.publish(put(t, mesh.TypeEndpoint, "other", assignmentOf("other", false)))
		s.Ack(s.Expect())
		s.Silent()
		r.want("acknowledged", "")
	})
}

// TestDrainsFlap: a form that is taken back is like the one before it, which
// the node acknowledged; in between it was sent the other, and may run that.
func TestDrainsFlap(t *testing.T) {
	for _, protocol := range []xdstest.Protocol{xdstest.Delta, xdstest.SotW} {
		inBubble(t, func(t *testing.T) {
			r := newDrainRig(t)
			form := func(usable bool) {
				t.Helper()
				time.Sleep(time.Second) // bubble time
				r.publish(put(t, mesh.TypeEndpoint, "c", assignmentOf("c", usable)))
			}
			form(false)
			s := r.open(protocol, "n")
			s.Subscribe(mesh.TypeEndpoint, "c")
			s.Ack(s.Expect())
			s.Silent()
			form(true)
			listed := s.Expect()
			form(false)
			r.want("the form that lists it is sent and not answered", "pending n c")
			s.Ack(listed)
			over := s.Expect()
			r.want("now it holds that form", "pending n c")
			s.Ack(over)
			s.Silent()
			r.want("and now the last one", "")

			form(true)
			s.Expect()
			form(false)
			s.Close()
			time.Sleep(time.Second) // bubble time
			r.want("left with the form that lists it", "disconnected n c")
		})
	}
}

// TestDrainsForgotten: a client comes with a form that was current here once, and
// listed what the History has forgotten since.
func TestDrainsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newDrainRig(t)
		r.history = drain.NewHistory(time.Now(), 1)
		old := put(t, mesh.TypeEndpoint, "c", assignmentOf("c", true))
		r.publish(old)
		r.publish(put(t, mesh.TypeEndpoint, "c", assignmentOf("c", false)))
		r.publish(put(t, mesh.TypeEndpoint, "d", assignmentOf("d", true)))
		time.Sleep(time.Second) // bubble time
		r.publish(put(t, mesh.TypeEndpoint, "d", assignmentOf("d", false)))
		time.Sleep(time.Second) // bubble time
		s := r.open(xdstest.Delta, "n")
		s.Send(xdstest.Request{Type: mesh.TypeEndpoint, Subscribe: []string{"c"}, Initial: map[string]string{"c": string(mesh.VersionOf(old.Put[0].Body))}})
		s.Expect()
		r.want("it has the form that lists it", "pending n c")
	})
}

// TestDrainsRemovedAndBack: in the state of the world nobody is told that an
// assignment is gone. Who left with it has it still, also when there is one of that name again.
func TestDrainsRemovedAndBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newDrainRig(t)
		r.publish(put(t, mesh.TypeEndpoint, "c", assignmentOf("c", true)))
		s := r.open(xdstest.SotW, "n")
		s.Subscribe(mesh.TypeEndpoint, "c")
		s.Ack(s.Expect())
		s.Silent()
		r.publish(remove(mesh.TypeEndpoint, "c"))
		s.Silent()
		r.want("gone", "pending n c")
		s.Close()
		time.Sleep(time.Second) // bubble time
		r.want("left", "disconnected n c")
		r.publish(put(t, mesh.TypeEndpoint, "c", &endpointv3.ClusterLoadAssignment{ClusterName: "c"}))
		r.want("there is an empty one now", "disconnected n c")
	})
}
