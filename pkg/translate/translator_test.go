package translate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/translate"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const echoName = "echo.default.svc.cluster.local:8080"

func echo() *mesh.Service {
	return &mesh.Service{
		Meta:  mesh.Meta{Key: key(mesh.KindService, "echo"), UID: "s", ResourceVersion: "5"},
		Ports: []mesh.ServicePort{{Name: "http", Port: 8080, Protocol: "TCP"}},
	}
}

func echoSlice(version string, addresses ...string) *mesh.EndpointSlice {
	return slice("echo", version, addresses...)
}

func slice(service, version string, addresses ...string) *mesh.EndpointSlice {
	s := &mesh.EndpointSlice{
		Meta:    mesh.Meta{Key: key(mesh.KindEndpointSlice, service+"-1"), UID: "e", ResourceVersion: version},
		Service: service, AddressType: "IPv4",
		Ports: []mesh.SlicePort{{Name: "http", Port: 9000, Protocol: "TCP"}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, mesh.SliceEndpoint{Addresses: []netip.Addr{netip.MustParseAddr(a)}, NodeName: "n1"})
	}
	return s
}

// addresses are those of an assignment.
func (s *state) addresses(t *testing.T, name string) []string {
	t.Helper()
	r, ok := s.resources[mesh.ResourceName{Type: mesh.TypeEndpoint, Name: name}]
	if !ok {
		t.Fatalf("no assignment %s", name)
	}
	var out []string
	for _, l := range parse(t, mesh.TypeEndpoint, r.Body).(*endpointv3.ClusterLoadAssignment).GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			out = append(out, e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
		}
	}
	return out
}

func changed(u mesh.Update) []string {
	var out []string
	for _, r := range u.Put {
		out = append(out, r.Type.Short()+" "+r.Name)
	}
	for _, r := range u.Remove {
		out = append(out, "-"+r.Type.Short()+" "+r.Name)
	}
	return out
}

func wantChanged(t *testing.T, u mesh.Update, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, changed(u)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
}

func TestLifeOfAService(t *testing.T) {
	s := newState()
	wantChanged(t, s.apply(t), "rds outbound")
	wantChanged(t, s.apply(t, puts(echoSlice("1", "10.0.0.1"))...))
	wantChanged(t, s.apply(t, puts(echo())...), "cds "+echoName, "eds "+echoName, "lds "+echoName, "rds "+echoName, "rds outbound")
	if k, ok := s.ServiceOf(echoName); !ok || k != echo().Key {
		t.Errorf("ServiceOf gave %v, %v", k, ok)
	}
	wantChanged(t, s.apply(t, puts(echoSlice("2", "10.0.0.2"))...), "eds "+echoName)
	opaque := echo()
	opaque.Ports[0].AppProtocol = "tcp"
	wantChanged(t, s.apply(t, puts(opaque)...), "cds "+echoName, "rds outbound", "-lds "+echoName, "-rds "+echoName)
	wantChanged(t, s.apply(t, translate.Change{Delete: echo().Meta}), "-cds "+echoName, "-eds "+echoName)
	if k, ok := s.ServiceOf(echoName); ok {
		t.Errorf("ServiceOf gave %v for a service that is gone", k)
	}
}

func TestCauseIsTheObjectThatTouched(t *testing.T) {
	s := newState()
	s.apply(t, puts(echo())...)
	u := s.apply(t, puts(echoSlice("17", "10.0.0.1"))...)
	want := mesh.Cause{Object: key(mesh.KindEndpointSlice, "echo-1"), ResourceVersion: "17"}
	if len(u.Put) != 1 || u.Put[0].Cause != want {
		t.Fatalf("put %v, want one with cause %v", u.Put, want)
	}
	u = s.apply(t, translate.Change{Delete: mesh.Meta{Key: echo().Key, ResourceVersion: "18"}})
	want = mesh.Cause{Object: echo().Key, ResourceVersion: "18"}
	for _, r := range u.Remove {
		if r.Cause != want {
			t.Errorf("%v has cause %v, want %v", r.ResourceName, r.Cause, want)
		}
	}
	if u.Put[0].Cause != want {
		t.Errorf("outbound has cause %v, want %v", u.Put[0].Cause, want)
	}
}

func TestOldObjectsAndDeletionsAreIgnored(t *testing.T) {
	other := func(uid, version string) mesh.Meta {
		return mesh.Meta{Key: key(mesh.KindEndpointSlice, "echo-1"), UID: uid, ResourceVersion: version}
	}
	recreated := echoSlice("3", "10.0.0.9")
	recreated.UID = "another"
	words := echoSlice("a", "10.0.0.9")
	tests := []struct {
		name   string
		change translate.Change
		want   []string
	}{
		{"older", puts(echoSlice("9", "10.0.0.9"))[0], []string{"10.0.0.1"}},
		{"newer, with more digits", puts(echoSlice("100", "10.0.0.9"))[0], []string{"10.0.0.9"}},
		{"older, of another UID", puts(recreated)[0], []string{"10.0.0.9"}},
		{"version is no number", puts(words)[0], []string{"10.0.0.9"}},
		{"older deletion", translate.Change{Delete: other("e", "9")}, []string{"10.0.0.1"}},
		{"deletion of another UID", translate.Change{Delete: other("x", "99")}, []string{"10.0.0.1"}},
		{"deletion", translate.Change{Delete: other("e", "10")}, nil},
		{"deletion that knows only the key", translate.Change{Delete: other("", "")}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newState()
			s.apply(t, puts(echo(), echoSlice("10", "10.0.0.1"))...)
			s.apply(t, tt.change)
			if got := s.addresses(t, echoName); !slices.Equal(got, tt.want) {
				t.Errorf("addresses %v, want %v", got, tt.want)
			}
		})
	}
}

func TestNodeTranslatesItsTenantsOnlyIfItsRegionChanges(t *testing.T) {
	s := newState()
	s.apply(t, puts(echo(), echoSlice("1", "10.0.0.1"))...)
	node := func(name, region, zone string) *mesh.Node {
		return &mesh.Node{Meta: mesh.Meta{Key: mesh.Key{Kind: mesh.KindNode, Name: name}}, Region: region, Zone: zone}
	}
	steps := []struct {
		name   string
		change translate.Change
		want   []string
	}{
		{"without region", puts(node("n1", "", "z1"))[0], nil},
		{"of another node", puts(node("n2", "r2", "z1"))[0], nil},
		{"new", puts(node("n1", "r1", "z1"))[0], []string{"eds " + echoName}},
		{"another zone", puts(node("n1", "r1", "z2"))[0], nil},
		{"gone", translate.Change{Delete: node("n1", "", "").Meta}, []string{"eds " + echoName}},
	}
	for _, step := range steps {
		before := s.Translations()
		u := s.apply(t, step.change)
		if diff := cmp.Diff(step.want, changed(u)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if n := s.Translations() - before; n != uint64(len(step.want)) {
			t.Errorf("%s: %d translations, want %d", step.name, n, len(step.want))
		}
	}
}

// TestShapingAloneIsAChange: the hints change, the unshaped bytes do not, and the update still says so.
func TestShapingAloneIsAChange(t *testing.T) {
	hinted := func(zone string) *mesh.EndpointSlice {
		e := echoSlice("", "10.0.0.1", "10.0.0.2")
		e.Endpoints[0].ForZones, e.Endpoints[1].ForZones = []string{zone}, []string{"z2"}
		return e
	}
	s := newState()
	s.apply(t, puts(echo(), hinted("z1"))...)
	wantChanged(t, s.apply(t, puts(hinted("z2"))...), "eds "+echoName)
	wantChanged(t, s.apply(t, puts(hinted("z2"))...))
}

// mesh2k puts n services of one endpoint each.
func meshOf(n int) []translate.Change {
	var changes []translate.Change
	for i := range n {
		name := fmt.Sprint("svc", i)
		s := echo()
		s.Name = name
		changes = append(changes, puts(s, slice(name, "1", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"))...)
	}
	return changes
}

func TestOneEndpointTranslatesOneServiceOf2000(t *testing.T) {
	tr := translate.New(translate.Config{})
	tr.Apply(meshOf(2000))
	if n := tr.Translations(); n != 2000 {
		t.Errorf("%d translations of 2000 services", n)
	}
	u := tr.Apply(puts(slice("svc1234", "2", "10.0.0.1", "10.0.0.99")))
	wantChanged(t, u, "eds svc1234.default.svc.cluster.local:8080")
	if n := tr.Translations(); n != 2001 {
		t.Errorf("%d translations for one changed endpoint", n-2000)
	}
}

func TestDiffers(t *testing.T) {
	held := newState()
	held.apply(t, puts(echo(), echoSlice("10", "10.0.0.1"), slice("other", "1", "10.0.0.8"))...)
	sameWithNewVersion := echoSlice("11", "10.0.0.1")
	second := echoSlice("12", "10.0.0.3")
	second.Name = "echo-2"
	tests := []struct {
		name string
		live []mesh.Object
		want []string
	}{
		{"equal", []mesh.Object{echo(), echoSlice("10", "10.0.0.1")}, nil},
		{"another version of the same", []mesh.Object{echo(), sameWithNewVersion}, nil},
		{"the read is older", []mesh.Object{echo(), echoSlice("9", "10.0.0.2")}, nil},
		{"other endpoints", []mesh.Object{echo(), echoSlice("11", "10.0.0.2")}, []string{"put EndpointSlice default/echo-1"}},
		{"a slice more", []mesh.Object{echo(), echoSlice("10", "10.0.0.1"), second}, []string{"put EndpointSlice default/echo-2"}},
		{"a slice less", []mesh.Object{echo()}, []string{"delete EndpointSlice default/echo-1"}},
		{"nothing", nil, []string{"delete EndpointSlice default/echo-1", "delete Service default/echo"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, c := range held.Differs(echo().Key, tt.live) {
				if c.Put == nil {
					got = append(got, "delete "+c.Delete.String())
				} else {
					got = append(got, "put "+c.Put.Metadata().String())
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDiffersHeals: whatever is held of a service and whatever is live, applying
// the differences makes them equal, and then there are none.
func TestDiffersHeals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newState()
		changes, _ := history(t)
		s.batches(t, changes)
		service := mesh.Key{Kind: mesh.KindService, Namespace: pick(t, namespaces), Name: pick(t, names)}
		var live []mesh.Object
		for _, k := range keys() {
			if k.Namespace != service.Namespace || k.Kind == mesh.KindPod || k.Kind == mesh.KindService && k != service || rapid.Bool().Draw(t, "absent") {
				continue
			}
			o := drawer(t, k)
			if slice, ok := o.(*mesh.EndpointSlice); ok {
				slice.Service = service.Name
			}
			o.Metadata().UID, o.Metadata().ResourceVersion = "live", "1000"
			live = append(live, o)
		}
		s.apply(t, s.Differs(service, live)...)
		if again := s.Differs(service, live); len(again) > 0 {
			t.Fatalf("still differs: %v", again)
		}
		if held := s.Objects(service); len(held) != len(live) {
			t.Fatalf("held %v, live %v", held, live)
		}
	})
}

func TestNodeListeners(t *testing.T) {
	list := func(o translate.NodeOptions) (names []string, problems []string) {
		resources, found := translate.NodeListeners(o)
		for _, r := range resources {
			parse(t, r.Type, r.Body)
			if r.For != mesh.ListenersSocket {
				t.Errorf("%s is for %q", r.Name, r.For)
			}
			names = append(names, r.Name)
		}
		for _, p := range found {
			problems = append(problems, p.String())
		}
		return names, problems
	}
	names, problems := list(translate.NodeOptions{})
	if !slices.Equal(names, []string{"outbound"}) || problems != nil {
		t.Errorf("default: %v %v", names, problems)
	}
	names, problems = list(translate.NodeOptions{
		ID:              "n",
		OutboundAddress: "127.0.0.1:15009",
		TCP:             map[string]string{"127.0.0.1:5432": "db", "[::1]:5432": "db", "127.0.0.1:15009": "x", "localhost:1": "x", "127.0.0.1:2": ""},
	})
	if diff := cmp.Diff([]string{"outbound", "tcp:127.0.0.1:5432", "tcp:[::1]:5432"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	want := []string{
		"node n: metadata.tcp[127.0.0.1:15009]: another listener has this address",
		"node n: metadata.tcp[127.0.0.1:2]: no cluster is named",
		"node n: metadata.tcp[localhost:1]: not an IP address with a port",
	}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if names, problems := list(translate.NodeOptions{OutboundAddress: "here"}); len(names) != 1 || len(problems) != 1 {
		t.Errorf("bad outbound address: %v %v", names, problems)
	}
}

// TestClusterDomain: the domain is in every name and authority.
func TestClusterDomain(t *testing.T) {
	s := &state{Translator: translate.New(translate.Config{ClusterDomain: "mesh.example."}), resources: make(map[mesh.ResourceName]mesh.Resource)}
	s.apply(t, puts(echo())...)
	s.check(t)
	name := "echo.default.svc.mesh.example:8080"
	r, ok := s.resources[mesh.ResourceName{Type: mesh.TypeRoute, Name: name}]
	if !ok {
		t.Fatalf("no route %s in %v", name, s.names(mesh.TypeRoute))
	}
	if d := parse(t, mesh.TypeRoute, r.Body).(*routev3.RouteConfiguration).GetVirtualHosts()[0].GetDomains(); !slices.Contains(d, name) {
		t.Errorf("domains %v", d)
	}
}

// BenchmarkEndpointChange changes one endpoint of one service; the time must
// not depend on the number of services.
func BenchmarkEndpointChange(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			tr := translate.New(translate.Config{})
			tr.Apply(meshOf(n))
			forms := [2][]translate.Change{
				puts(slice("svc50", "", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")),
				puts(slice("svc50", "", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.6")),
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if u := tr.Apply(forms[i%2]); len(u.Put) == 0 && i > 1 {
					b.Fatal("nothing changed")
				}
			}
		})
	}
}

// BenchmarkServiceChange adds and removes a port of one service, which makes the outbound table anew.
func BenchmarkServiceChange(b *testing.B) {
	tr := translate.New(translate.Config{})
	tr.Apply(meshOf(10_000))
	one, two := echo(), echo()
	two.Ports = append(two.Ports, mesh.ServicePort{Name: "alt", Port: 8081, Protocol: "TCP"})
	one.UID, two.UID = "", ""
	forms := [2][]translate.Change{puts(one), puts(two)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		tr.Apply(forms[i%2])
	}
}

// Envoy warms a changed cluster until its assignment comes again (xDS protocol,
// "Resource warming"), so a cluster names it; one that is resolved by DNS has none.
func TestClusterIsFollowedByItsAssignment(t *testing.T) {
	outside := &mesh.Service{
		Meta: mesh.Meta{Key: key(mesh.KindService, "outside")}, Type: "ExternalName", ExternalName: "example.org",
		Ports: []mesh.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}},
	}
	tr := translate.New(translate.Config{ClusterDomain: "cluster.local"})
	update := tr.Apply([]translate.Change{{Put: echo()}, {Put: outside}})
	got := make(map[string][]mesh.ResourceName)
	for _, r := range update.Put {
		if r.Type == mesh.TypeCluster {
			got[r.Name] = r.FollowedBy
		}
	}
	want := map[string][]mesh.ResourceName{
		echoName:                               {{Type: mesh.TypeEndpoint, Name: echoName}},
		"outside.default.svc.cluster.local:80": nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
