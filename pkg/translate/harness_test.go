package translate_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/translate"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// views are those that every shaped resource is looked at through.
var views = []mesh.View{
	{Namespace: "a"},
	{Namespace: "svc"},
	{Namespace: "default"},
	{Zone: "z1"},
	{Zone: "z2"},
	{Zone: "z3"},
	{Node: "n1"},
	{Node: "n2"},
	{Node: "n3"},
	{Zone: "z1", Node: "n2"},
	{Zone: "z2", Node: "n1"},
}

// state is what a reader of all updates holds.
type state struct {
	*translate.Translator
	resources map[mesh.ResourceName]mesh.Resource
}

func newState() *state {
	return &state{
		Translator: translate.New(translate.Config{}),
		resources:  make(map[mesh.ResourceName]mesh.Resource),
	}
}

// apply applies and checks that the update is honest: sorted, nothing twice,
// nothing put that did not change, nothing removed that was not there.
func (s *state) apply(t fataler, changes ...translate.Change) mesh.Update {
	t.Helper()
	u := s.Apply(changes)
	seen := make(map[mesh.ResourceName]bool)
	for _, r := range u.Put {
		name := mesh.ResourceName{Type: r.Type, Name: r.Name}
		if seen[name] {
			t.Fatalf("%v is in the update twice", name)
		}
		seen[name] = true
		if old, ok := s.resources[name]; ok && slices.Equal(bodies(old), bodies(r)) && old.For == r.For && old.ShapedBy == r.ShapedBy && old.ShapedBy == 0 {
			t.Fatalf("%v was put and is the same", name)
		}
		if (r.ShapedBy != 0) != (r.Shape != nil) {
			t.Fatalf("%v: ShapedBy %d, Shape %v", name, r.ShapedBy, r.Shape != nil)
		}
		s.resources[name] = r
	}
	for _, r := range u.Remove {
		if _, ok := s.resources[r.ResourceName]; !ok || seen[r.ResourceName] {
			t.Fatalf("%v was removed: held %v, put as well %v", r.ResourceName, ok, seen[r.ResourceName])
		}
		seen[r.ResourceName] = true
		delete(s.resources, r.ResourceName)
	}
	return u
}

func puts(objects ...mesh.Object) []translate.Change {
	var changes []translate.Change
	for _, o := range objects {
		changes = append(changes, translate.Change{Put: o})
	}
	return changes
}

// bodies are a resource's bytes for every view.
func bodies(r mesh.Resource) []string {
	all := []string{string(r.Body)}
	for _, v := range views {
		b := r.Body
		if v := v.Mask(r.ShapedBy); r.Shape != nil && v != (mesh.View{}) {
			b = r.Shape(v)
		}
		all = append(all, string(b))
	}
	return all
}

// dump is all that a reader can see of a state.
func (s *state) dump() map[string][]string {
	all := make(map[string][]string)
	for name, r := range s.resources {
		all[name.Type.Short()+" "+name.Name] = append(bodies(r), string(r.For), fmt.Sprint(r.ShapedBy))
	}
	for _, p := range s.Problems() {
		all["problem "+p.String()] = nil
	}
	return all
}

func message(t fataler, kind mesh.Type) proto.Message {
	switch kind {
	case mesh.TypeCluster:
		return &clusterv3.Cluster{}
	case mesh.TypeEndpoint:
		return &endpointv3.ClusterLoadAssignment{}
	case mesh.TypeListener:
		return &listenerv3.Listener{}
	case mesh.TypeRoute:
		return &routev3.RouteConfiguration{}
	}
	t.Fatalf("unknown type %s", kind)
	return nil
}

func parse(t fataler, kind mesh.Type, body []byte) proto.Message {
	t.Helper()
	m := message(t, kind)
	if err := proto.Unmarshal(body, m); err != nil {
		t.Fatalf("unmarshal %s: %v", kind.Short(), err)
	}
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil || !bytes.Equal(again, body) {
		t.Fatalf("%s is not in its deterministic form: %v (%v)", kind.Short(), m, err)
	}
	validate(t, m)
	return m
}

// validate runs the generated rules over m and all that is in it, packed or not.
func validate(t fataler, m proto.Message) {
	t.Helper()
	err := protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		last := p.Index(-1)
		if last.Step.Kind() != protopath.AnyExpandStep && last.Step.Kind() != protopath.RootStep {
			return nil
		}
		v, ok := last.Value.Message().Interface().(interface{ ValidateAll() error })
		if !ok {
			return fmt.Errorf("%T has no rules", last.Value.Message().Interface())
		}
		return v.ValidateAll()
	})
	if err != nil {
		t.Fatalf("%v: %v", m, err)
	}
}

// check holds every resource, in every view, to what clients require.
func (s *state) check(t fataler) {
	t.Helper()
	for name, r := range s.resources {
		for _, body := range slices.Compact(slices.Sorted(slices.Values(bodies(r)))) {
			switch m := parse(t, name.Type, []byte(body)).(type) {
			case *clusterv3.Cluster:
				s.checkCluster(t, m)
			case *endpointv3.ClusterLoadAssignment:
				checkAssignment(t, name.Name, m)
			case *routev3.RouteConfiguration:
				s.checkRoute(t, m)
			}
		}
		if name.Type == mesh.TypeListener {
			if _, ok := s.resources[mesh.ResourceName{Type: mesh.TypeRoute, Name: name.Name}]; !ok {
				t.Errorf("listener %s has no route", name.Name)
			}
		}
	}
}

func (s *state) checkCluster(t fataler, c *clusterv3.Cluster) {
	_, assigned := s.resources[mesh.ResourceName{Type: mesh.TypeEndpoint, Name: c.GetName()}]
	if eds := c.GetType() == clusterv3.Cluster_EDS; eds != assigned || eds == (c.GetLoadAssignment() != nil) {
		t.Errorf("cluster %s: EDS %v, assignment %v, inline %v", c.GetName(), eds, assigned, c.GetLoadAssignment())
	}
	if _, ok := s.ServiceOf(c.GetName()); !ok && c.GetType() != clusterv3.Cluster_STATIC {
		t.Errorf("cluster %s belongs to no service", c.GetName())
	}
}

func checkAssignment(t fataler, name string, cla *endpointv3.ClusterLoadAssignment) {
	if cla.GetClusterName() != name {
		t.Errorf("assignment %s names %s", name, cla.GetClusterName())
	}
	addresses, localities, priorities := map[string]bool{}, map[string]bool{}, map[uint32]bool{}
	for _, l := range cla.GetEndpoints() {
		place := fmt.Sprintf("%d/%v", l.GetPriority(), l.GetLocality())
		if l.GetLocality() == nil || l.GetLoadBalancingWeight().GetValue() < 1 || localities[place] || len(l.GetLbEndpoints()) == 0 {
			t.Errorf("assignment %s: bad locality %v", name, l)
		}
		localities[place], priorities[l.GetPriority()] = true, true
		for _, e := range l.GetLbEndpoints() {
			a := e.GetEndpoint().GetAddress().String()
			if addresses[a] || e.GetLoadBalancingWeight() != nil {
				t.Errorf("assignment %s: bad endpoint %v", name, e)
			}
			addresses[a] = true
		}
	}
	for p := range priorities {
		if p > 0 && !priorities[p-1] {
			t.Errorf("assignment %s: priority %d without %d", name, p, p-1)
		}
	}
}

func (s *state) checkRoute(t fataler, c *routev3.RouteConfiguration) {
	domains, names := make(map[string]string), make(map[string]bool)
	for _, h := range c.GetVirtualHosts() {
		if names[h.GetName()] {
			t.Errorf("route %s: virtual host %s is there twice", c.GetName(), h.GetName())
		}
		names[h.GetName()] = true
		for _, d := range h.GetDomains() {
			if first, ok := domains[d]; ok {
				t.Errorf("route %s: domain %s is of %s and of %s", c.GetName(), d, first, h.GetName())
			}
			domains[d] = h.GetName()
		}
		cluster := h.GetRoutes()[0].GetRoute().GetCluster()
		if _, ok := s.resources[mesh.ResourceName{Type: mesh.TypeCluster, Name: cluster}]; !ok {
			t.Errorf("route %s leads to %s, which is no cluster", c.GetName(), cluster)
		}
	}
}

// names are the names of one type, sorted.
func (s *state) names(kind mesh.Type) []string {
	var out []string
	for name := range maps.Keys(s.resources) {
		if name.Type == kind {
			out = append(out, name.Name)
		}
	}
	slices.Sort(out)
	return out
}
