package drain_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func address(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func lb(host string, port uint32, status corev3.HealthStatus) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HealthStatus: status, HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
		Endpoint: &endpointv3.Endpoint{Address: address(host, port)},
	}}
}

func assignment(all ...*endpointv3.LbEndpoint) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: "echo", Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: all}}}
}

func body(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestList(t *testing.T) {
	a := assignment(
		lb("10.0.0.1", 80, corev3.HealthStatus_HEALTHY), lb("10.0.0.2", 80, corev3.HealthStatus_DRAINING),
		lb("10.0.0.3", 80, corev3.HealthStatus_UNKNOWN), lb("10.0.0.4", 80, corev3.HealthStatus_UNHEALTHY),
		lb("fd00::1", 80, corev3.HealthStatus_HEALTHY), lb("::ffff:10.0.0.5", 80, corev3.HealthStatus_HEALTHY),
		lb("example.com", 80, corev3.HealthStatus_HEALTHY), lb("10.0.0.2", 80, corev3.HealthStatus_DRAINING),
		&endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_EndpointName{EndpointName: "named"}},
	)
	a.NamedEndpoints = map[string]*endpointv3.Endpoint{"named": {
		Address: address("10.0.0.6", 80), AdditionalAddresses: []*endpointv3.Endpoint_AdditionalAddress{{Address: address("fd00::6", 80)}},
	}}
	a.Endpoints = append(a.Endpoints, &endpointv3.LocalityLbEndpoints{
		Priority:    1,
		LbEndpoints: []*endpointv3.LbEndpoint{lb("10.0.0.2", 80, corev3.HealthStatus_DEGRADED)}, // usable as a fallback
	})
	want := drain.Listing{}
	for text, usable := range map[string]bool{
		"10.0.0.1:80": true, "10.0.0.2:80": true, "10.0.0.3:80": true, "10.0.0.4:80": true, "[fd00::1]:80": true,
		"10.0.0.5:80": true, "10.0.0.6:80": true, "[fd00::6]:80": true,
	} {
		want[netip.MustParseAddrPort(text)] = usable
	}
	for name, form := range map[mesh.Type]proto.Message{
		mesh.TypeEndpoint: a,
		mesh.TypeCluster:  &clusterv3.Cluster{Name: "echo", LoadAssignment: a},
	} {
		got, err := drain.List(name, body(t, form))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name.Short(), diff)
		}
	}
	if got, err := drain.List(mesh.TypeCluster, body(t, &clusterv3.Cluster{Name: "echo"})); err != nil || len(got) > 0 {
		t.Errorf("a cluster without endpoints lists %v, %v", got, err)
	}
	for _, kind := range drain.Types {
		if _, err := drain.List(kind, []byte{0xff}); err == nil {
			t.Errorf("%s: broken bytes are read", kind.Short())
		}
	}
}

// historyModel is what a History should know, kept naively.
type historyModel struct {
	// usable: resource → endpoint number → usable in the newest form. clean: when it last ceased to be.
	usable map[string]map[int]bool
	clean  map[[2]any]mesh.Generation
}

// TestHistory compares with a naive model: an endpoint is in use exactly while
// the newest form lists it, and is clean since the generation that took it away.
func TestHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drain.NewHistory(now, 0)
		m := historyModel{make(map[string]map[int]bool), make(map[[2]any]mesh.Generation)}
		for g := mesh.Generation(1); g < 20; g++ {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")
			old, next := m.usable[name], map[int]bool{}
			at := now.Add(time.Duration(g) * time.Second)
			if rapid.IntRange(0, 5).Draw(t, "removed") == 0 {
				h.Note(mesh.Update{Remove: []mesh.Removal{{ResourceName: mesh.ResourceName{Type: mesh.TypeEndpoint, Name: name}}}}, g, at)
			} else {
				var all []*endpointv3.LbEndpoint
				shaped := mesh.ViewFields(rapid.IntRange(0, 1).Draw(t, "shaped"))
				for i := range 3 {
					switch rapid.IntRange(0, 2).Draw(t, fmt.Sprint("endpoint ", i)) {
					case 1:
						all = append(all, lb(fmt.Sprint("10.0.0.", i), 80, corev3.HealthStatus_HEALTHY))
						next[i] = true
					case 2:
						all = append(all, lb(fmt.Sprint("10.0.0.", i), 80, corev3.HealthStatus_DRAINING))
						if shaped != 0 {
							next[i] = true // healthy for another view, perhaps
						}
					}
				}
				b, err := proto.Marshal(assignment(all...))
				if err != nil {
					t.Fatal(err)
				}
				h.Note(mesh.Update{Put: []mesh.Resource{{Type: mesh.TypeEndpoint, Name: name, Body: b, ShapedBy: shaped}}}, g, at)
			}
			for i := range old {
				if !next[i] {
					m.clean[[2]any{name, i}] = g
				}
			}
			m.usable[name] = next
			m.check(t, h)
		}
	})
}

func (m historyModel) check(t *rapid.T, h *drain.History) {
	for i := range 3 {
		got := map[string]mesh.Generation{}
		e := drain.Endpoint{Address: netip.MustParseAddr(fmt.Sprint("10.0.0.", i)), Port: 80}
		for _, u := range h.Recall([]drain.Endpoint{e}).Uses {
			got[u.Resource.Name] = u.Clean
		}
		want := map[string]mesh.Generation{}
		for _, name := range []string{"a", "b"} {
			if m.usable[name][i] {
				want[name] = 0
			} else if g := m.clean[[2]any{name, i}]; g != 0 {
				want[name] = g
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("endpoint %d (-want +got):\n%s", i, diff)
		}
	}
}

// TestHistoryForgets: with its oldest use it forgets what was before, and says so.
func TestHistoryForgets(t *testing.T) {
	h := drain.NewHistory(now, 2)
	put := func(g mesh.Generation, all ...*endpointv3.LbEndpoint) {
		h.Note(mesh.Update{Put: []mesh.Resource{{Type: mesh.TypeEndpoint, Name: "echo", Body: body(t, assignment(all...))}}}, g, now.Add(time.Duration(g)*time.Second))
	}
	for g := range mesh.Generation(5) {
		put(g+1, lb(fmt.Sprint("10.0.0.", g), 80, corev3.HealthStatus_HEALTHY))
	}
	for i, want := range []int{0, 0, 1, 1, 1} { // 4 are over, 2 of them remembered
		e := drain.Endpoint{Address: netip.MustParseAddr(fmt.Sprint("10.0.0.", i))}
		if got := h.Recall([]drain.Endpoint{e}); len(got.Uses) != want {
			t.Errorf("endpoint %d: %d uses, want %d", i, len(got.Uses), want)
		}
	}
	if got, want := h.Recall(nil).Horizon, now.Add(3*time.Second); !got.Equal(want) {
		t.Errorf("horizon %v, want %v", got, want)
	}
}

// BenchmarkNote is what the barrier costs a publication of 1,000 endpoints.
func BenchmarkNote(b *testing.B) {
	var all []*endpointv3.LbEndpoint
	for i := range 1000 {
		all = append(all, lb(fmt.Sprintf("10.0.%d.%d", i/250, i%250), 80, corev3.HealthStatus_HEALTHY))
	}
	forms := [][]byte{body(b, assignment(all...)), body(b, assignment(all[1:]...))}
	h := drain.NewHistory(now, 0)
	for i := range b.N {
		h.Note(mesh.Update{Put: []mesh.Resource{{Type: mesh.TypeEndpoint, Name: "echo", Body: forms[i%2]}}}, mesh.Generation(i+1), now)
	}
}
