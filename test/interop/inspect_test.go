package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin"
	"github.com/freshmesh/freshmesh/pkg/admin/envoyaudit"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
	"github.com/freshmesh/freshmesh/pkg/xds"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// record makes the tests write what real clients said and sent into the testdata of other packages.
var record = flag.Bool("record", false, "write recordings of real clients into the testdata of the packages that replay them")

// labStore shows what one node of a lab should have, whether or not it has a stream.
type labStore struct {
	admin.Store
	l        *lab
	outbound string
}

// Resources implements admin.Store.
func (s labStore) Resources(_ context.Context, q admin.Query) ([]admin.Resource, error) {
	view := mesh.View{Listeners: mesh.ListenersSocket, Namespace: "default"}
	own, err := labListeners(xds.Node{View: view, OutboundAddress: s.outbound})
	if err != nil {
		return nil, err
	}
	reader := s.l.store.Open(view, snapshot.NewOwn(own))
	defer reader.Close()
	var out []admin.Resource
	for _, b := range reader.View().All(q.Type) {
		out = append(out, admin.Resource{Name: b.Name.Value(), Version: b.Version, Body: b.Value()})
	}
	return out, nil
}

// inspection is an Envoy's state beside what it should be: file name → content.
type inspection map[string][]byte

// inspect asks Envoy, and the lab.
func inspect(t *testing.T, l *lab, c client) inspection {
	t.Helper()
	out := inspection{
		"config_dump.json": withoutExtensions(t, meshtest.Get(t, c.envoy.Admin, "/config_dump?include_eds")),
		"clusters.json":    []byte(meshtest.Get(t, c.envoy.Admin, "/clusters?format=json")),
	}
	server := admin.New(admin.Config{Store: labStore{l: l, outbound: c.envoy.Outbound}, Gatherer: prometheus.NewRegistry()})
	for _, kind := range mesh.GeneratedTypes {
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/resources?type="+kind.Short(), nil))
		out[kind.Short()+".json"] = w.Body.Bytes()
	}
	return out
}

// withoutExtensions takes Envoy's list of what is built into it, most of a dump, out.
func withoutExtensions(t *testing.T, dump string) []byte {
	t.Helper()
	var d map[string]any
	if err := json.Unmarshal([]byte(dump), &d); err != nil {
		t.Fatal(err)
	}
	for _, config := range d["configs"].([]any) {
		if b, ok := config.(map[string]any)["bootstrap"].(map[string]any); ok {
			delete(b["node"].(map[string]any), "extensions")
		}
	}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (i inspection) compare(t *testing.T) envoyaudit.Report {
	t.Helper()
	running, err := envoyaudit.Read(i["config_dump.json"], i["clusters.json"])
	if err != nil {
		t.Fatal(err)
	}
	want := envoyaudit.Wanted{}
	for _, kind := range mesh.GeneratedTypes {
		var answer struct{ Resources []envoyaudit.Resource }
		if err := json.Unmarshal(i[kind.Short()+".json"], &answer); err != nil {
			t.Fatal(err)
		}
		want[kind] = answer.Resources
	}
	return envoyaudit.Compare(want, running)
}

// save writes it, where -record asks for that.
func (i inspection) save(t *testing.T, name string) {
	t.Helper()
	if !*record {
		return
	}
	dir := filepath.Join("..", "..", "pkg", "admin", "envoyaudit", "testdata", name)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as any testdata
		t.Fatal(err)
	}
	for file, content := range i {
		var small bytes.Buffer
		if err := json.Compact(&small, content); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), small.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// mixed is an assignment with everything that Envoy shows of one.
func mixed() *endpointv3.ClusterLoadAssignment {
	endpoint := func(port uint32, s corev3.HealthStatus, weight uint32, hostname string) *endpointv3.LbEndpoint {
		e := &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Hostname: hostname,
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: "127.0.0.9", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
				}}},
			}},
			HealthStatus: s,
		}
		if weight > 0 {
			e.LoadBalancingWeight = wrapperspb.UInt32(weight)
		}
		return e
	}
	spoken := endpoint(5, corev3.HealthStatus_DEGRADED, 0, "five")
	spoken.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.transport_socket_match": {
		Fields: map[string]*structpb.Value{"identity": structpb.NewStringValue("spiffe://cluster.local/ns/default/sa/echo")},
	}}}
	return &endpointv3.ClusterLoadAssignment{ClusterName: "mixed", Endpoints: []*endpointv3.LocalityLbEndpoints{
		{
			Locality: &corev3.Locality{Region: "r", Zone: "a"}, LoadBalancingWeight: wrapperspb.UInt32(3),
			LbEndpoints: []*endpointv3.LbEndpoint{
				endpoint(1, corev3.HealthStatus_UNKNOWN, 0, ""), endpoint(2, corev3.HealthStatus_DRAINING, 0, ""),
				endpoint(3, corev3.HealthStatus_UNHEALTHY, 7, ""), endpoint(4, corev3.HealthStatus_TIMEOUT, 0, ""),
			},
		},
		{
			Locality: &corev3.Locality{Region: "r", Zone: "b", SubZone: "c"}, Priority: 1, LoadBalancingWeight: wrapperspb.UInt32(1),
			LbEndpoints: []*endpointv3.LbEndpoint{spoken},
		},
	}}
}

// Whatever an assignment says, Envoy is found to have it; and in trouble, what
// it has not is named.
func TestEnvoyInspected(t *testing.T) {
	t.Parallel()
	l, clients := startEnvoyLab(t)
	l.publish(namesake(t, l, "mixed", "mixed"), resource(t, mesh.TypeEndpoint, "mixed", mixed()),
		namesake(t, l, "shares", interoptest.ClusterName("echo")))
	for _, c := range clients {
		l.wantState(t, c, ack.Fresh, 5*time.Second)
		testwait.Within(t, 5*time.Second, "in effect", func() bool { return inspect(t, l, c).compare(t).InEffect })
		i := inspect(t, l, c)
		i.save(t, c.protocol)
		if got := i.compare(t); got.Compared.Endpoints != 7 || got.Compared.Clusters != 3 || string(got.Node) != c.name || got.Client != "envoy 1.40.0" {
			t.Errorf("%+v", got)
		}
	}
	l.trouble(t, clients)
}

// trouble: a cluster that warms, a listener that is refused, and then changes while the control plane is away.
func (l *lab) trouble(t *testing.T, clients []client) {
	t.Helper()
	refused := resource(t, mesh.TypeListener, "refused", &listenerv3.Listener{Name: "refused", Address: &corev3.Address{
		Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "no address", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 1},
		}},
	}})
	refused.For = mesh.ListenersSocket
	l.publish(refused)
	for _, c := range clients {
		testwait.Within(t, 5*time.Second, "refused", func() bool { return nack(l.node(t, c), mesh.TypeListener) != nil })
	}
	l.publish(namesake(t, l, "warming", "nobody has it"))
	testwait.Within(t, 5*time.Second, "warming", func() bool { // delta ends it by saying that there is no such assignment
		return clients[1].envoy.Stat(t, "cluster_manager.warming_clusters") == "1" && clients[0].envoy.Stat(t, "cluster_manager.active_clusters") == "5"
	})
	l.server.Shutdown()
	changed := edit(t, l, mesh.TypeCluster, "mixed", &clusterv3.Cluster{}, func(c *clusterv3.Cluster) {
		c.ConnectTimeout.Seconds = 7
		c.LoadBalancingPolicy.Policies = c.LoadBalancingPolicy.GetPolicies()[1:]
	})
	assignment := mixed()
	local := assignment.GetEndpoints()[0]
	local.LoadBalancingWeight = wrapperspb.UInt32(2)
	local.LbEndpoints = local.GetLbEndpoints()[1:]
	local.GetLbEndpoints()[0].HealthStatus = corev3.HealthStatus_HEALTHY
	local.GetLbEndpoints()[1].LoadBalancingWeight = wrapperspb.UInt32(8)
	l.publish(changed, resource(t, mesh.TypeEndpoint, "mixed", assignment))
	l.service("echo", "127.0.0.8:1")
	l.service("later", "127.0.0.8:2")
	l.store.Publish(mesh.Update{Remove: []mesh.Removal{{ResourceName: mesh.ResourceName{Type: mesh.TypeCluster, Name: "shares"}}}}, time.Now())
	for _, c := range clients {
		i := inspect(t, l, c)
		i.save(t, c.protocol+"-trouble")
		got := i.compare(t)
		var kinds []envoyaudit.Kind
		for _, d := range got.Differences {
			t.Log(d)
			kinds = append(kinds, d.Kind)
		}
		for _, k := range []envoyaudit.Kind{envoyaudit.Missing, envoyaudit.Extra, envoyaudit.Older, envoyaudit.Warming, envoyaudit.Refused} {
			if !slices.Contains(kinds, k) && (k != envoyaudit.Warming || c.protocol == "sotw") {
				t.Errorf("%s: nothing is %s", c.name, k)
			}
		}
	}
}
