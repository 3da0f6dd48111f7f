package kubeproxy

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/object"
	"github.com/freshmesh/freshmesh/pkg/translate"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/proxy"
)

// place is where a proxy runs; the last has no zone, and the very last is
// nowhere: the unshaped form.
type place struct{ node, zone string }

var places = []place{{"n1", "z1"}, {"n2", "z2"}, {"n3", "z1"}, {"n4", "z3"}, {"n5", ""}, {"", ""}}

// servicePort is what CategorizeEndpoints asks of a service port; anything else it would ask panics.
type servicePort struct {
	proxy.ServicePort
	local bool
}

func (s servicePort) String() string             { return "default/echo:http" }
func (s servicePort) UsesClusterEndpoints() bool { return !s.local }
func (s servicePort) UsesLocalEndpoints() bool   { return s.local }

// oracle is a kube-proxy's endpoint tracker for each place and family; families
// that a test does without cost time only.
type oracle struct {
	trackers map[place][]*proxy.EndpointsChangeTracker
	maps     map[place][]proxy.EndpointsMap
}

func newOracle(families ...corev1.IPFamily) *oracle {
	o := &oracle{trackers: map[place][]*proxy.EndpointsChangeTracker{}, maps: map[place][]proxy.EndpointsMap{}}
	same := func(e *proxy.BaseEndpointInfo, _ *proxy.ServicePortName) proxy.Endpoint { return e }
	for _, p := range places {
		for _, family := range families {
			o.trackers[p] = append(o.trackers[p], proxy.NewEndpointsChangeTracker(family, p.node, same, nil))
			o.maps[p] = append(o.maps[p], make(proxy.EndpointsMap))
		}
	}
	return o
}

func (o *oracle) put(s *discoveryv1.EndpointSlice) {
	for _, p := range places {
		for i, t := range o.trackers[p] {
			t.EndpointSliceUpdate(s, false)
			o.maps[p][i].Update(t)
		}
	}
}

// uses are the addresses that kube-proxy at p sends traffic to, sorted.
func (o *oracle) uses(p place, local bool) []string {
	name := proxy.ServicePortName{NamespacedName: types.NamespacedName{Namespace: "default", Name: "echo"}, Port: "http", Protocol: corev1.ProtocolTCP}
	var labels map[string]string
	if p.zone != "" {
		labels = map[string]string{corev1.LabelTopologyZone: p.zone}
	}
	var out []string
	for _, m := range o.maps[p] {
		_, _, all, _ := proxy.CategorizeEndpoints(m[name], servicePort{local: local}, p.node, labels)
		for _, e := range all {
			out = append(out, e.String())
		}
	}
	slices.Sort(out)
	return out
}

// ours is a translator, and the last assignment that it gave.
type ours struct {
	t    *translate.Translator
	last mesh.Resource
}

func newOurs(tb testing.TB, local bool) *ours {
	tb.Helper()
	policy := corev1.ServiceInternalTrafficPolicyCluster
	if local {
		policy = corev1.ServiceInternalTrafficPolicyLocal
	}
	o := &ours{t: translate.New(translate.Config{})}
	o.put(tb, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "echo"},
		Spec: corev1.ServiceSpec{
			InternalTrafficPolicy: &policy,
			Ports:                 []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	})
	return o
}

func (o *ours) put(tb testing.TB, in runtime.Object) {
	tb.Helper()
	m, problems, err := object.Convert(in)
	if err != nil || len(problems) > 0 {
		tb.Fatal(err, problems)
	}
	for _, r := range o.t.Apply([]translate.Change{{Put: m}}).Put {
		if r.Type == mesh.TypeEndpoint {
			o.last = r
		}
	}
}

// uses are the healthy addresses in the view of a proxy at p, sorted.
func (o *ours) uses(tb testing.TB, p place) []string {
	tb.Helper()
	body := o.last.Body
	if v := (mesh.View{Node: p.node, Zone: p.zone}).Mask(o.last.ShapedBy); v != (mesh.View{}) {
		body = o.last.Shape(v)
	}
	var cla endpointv3.ClusterLoadAssignment
	if err := proto.Unmarshal(body, &cla); err != nil {
		tb.Fatal(err)
	}
	var out []string
	for _, l := range cla.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			if e.GetHealthStatus() == corev3.HealthStatus_HEALTHY {
				a := e.GetEndpoint().GetAddress().GetSocketAddress()
				out = append(out, netip.AddrPortFrom(netip.MustParseAddr(a.GetAddress()), uint16(a.GetPortValue())).String())
			}
		}
	}
	slices.Sort(out)
	return out
}

// hint is what a slice says of an endpoint's topology.
type hint struct{ zones, nodes []string }

func (h hint) api() *discoveryv1.EndpointHints {
	var out discoveryv1.EndpointHints
	for _, z := range h.zones {
		out.ForZones = append(out.ForZones, discoveryv1.ForZone{Name: z})
	}
	for _, n := range h.nodes {
		out.ForNodes = append(out.ForNodes, discoveryv1.ForNode{Name: n})
	}
	if len(h.zones)+len(h.nodes) == 0 {
		return nil
	}
	return &out
}

var hints = []hint{
	{},
	{zones: []string{"z1"}},
	{zones: []string{"z1", "z2"}},
	{nodes: []string{"n1"}},
	{zones: []string{"z2"}, nodes: []string{"n2", "n3"}},
}

// conditions are all combinations of nil, true and false.
func conditions() []discoveryv1.EndpointConditions {
	values := []*bool{nil, new(true), new(false)}
	var out []discoveryv1.EndpointConditions
	for _, ready := range values {
		for _, serving := range values {
			for _, terminating := range values {
				out = append(out, discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating})
			}
		}
	}
	return out
}

// tuples gives all n-tuples of indexes below size.
func tuples(n, size int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		t := make([]int, n)
		for {
			if !yield(t) {
				return
			}
			i := 0
			for ; i < n; i++ {
				if t[i]++; t[i] < size {
					break
				}
				t[i] = 0
			}
			if i == n {
				return
			}
		}
	}
}

func slice(name string, family discoveryv1.AddressType, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	protocol := corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "echo"}},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: &protocol}},
		Endpoints:   endpoints,
	}
}

// endpoint is the i-th: on n1, n2, n1.
func endpoint(i int, address string, c discoveryv1.EndpointConditions, h hint) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: c,
		NodeName:   new([]string{"n1", "n2", "n1"}[i]),
		Hints:      h.api(),
	}
}

// rig is both sides, for both policies.
type rig struct {
	oracle *oracle
	ours   map[bool]*ours
	cases  int
}

func newRig(tb testing.TB, families ...corev1.IPFamily) *rig {
	tb.Helper()
	return &rig{oracle: newOracle(families...), ours: map[bool]*ours{false: newOurs(tb, false), true: newOurs(tb, true)}}
}

// compare gives slices to both sides and compares what each place uses.
func (r *rig) compare(t *testing.T, in ...*discoveryv1.EndpointSlice) {
	t.Helper()
	for _, s := range in {
		r.oracle.put(s)
	}
	for local, o := range r.ours {
		for _, s := range in {
			o.put(t, s)
		}
		for _, p := range places {
			if local && p.node == "" {
				// Nobody is local to nowhere; our unshaped form is the cluster's.
				continue
			}
			r.cases++
			want, got := r.oracle.uses(p, local), o.uses(t, p)
			if !slices.Equal(want, got) {
				t.Fatalf("at %+v, local %v: kube-proxy uses %v, we use %v of\n%s", p, local, want, got, describe(in))
			}
		}
	}
}

func describe(in []*discoveryv1.EndpointSlice) string {
	show := func(b *bool) string {
		if b == nil {
			return "nil"
		}
		return strconv.FormatBool(*b)
	}
	var out strings.Builder
	for _, s := range in {
		for _, e := range s.Endpoints {
			c := e.Conditions
			fmt.Fprintf(&out, "%s on %s ready %s serving %s terminating %s hints %v\n",
				e.Addresses[0], *e.NodeName, show(c.Ready), show(c.Serving), show(c.Terminating), e.Hints)
		}
	}
	return out.String()
}

// TestConditionsAndHints: one and two endpoints, all conditions, all hints.
func TestConditionsAndHints(t *testing.T) {
	r, all := newRig(t, corev1.IPv4Protocol), conditions()
	for n := 1; n <= 2; n++ {
		for c := range tuples(n, len(all)) {
			for h := range tuples(n, len(hints)) {
				var endpoints []discoveryv1.Endpoint
				for i := range n {
					endpoints = append(endpoints, endpoint(i, fmt.Sprintf("10.0.0.%d", i+1), all[c[i]], hints[h[i]]))
				}
				r.compare(t, slice("echo-1", discoveryv1.AddressTypeIPv4, endpoints...))
			}
		}
	}
	t.Logf("%d comparisons", r.cases)
}

// TestThreeEndpoints: all conditions of three endpoints, for the sets of hints that differ in kind.
func TestThreeEndpoints(t *testing.T) {
	all := conditions()
	for name, set := range map[string][]hint{
		"none":            {hints[0], hints[0], hints[0]},
		"zones":           {hints[1], hints[2], hints[4]},
		"zones and nodes": {hints[4], hints[4], {zones: []string{"z1"}, nodes: []string{"n1"}}},
		"one without":     {hints[1], hints[4], hints[0]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, corev1.IPv4Protocol)
			for c := range tuples(3, len(all)) {
				var endpoints []discoveryv1.Endpoint
				for i := range 3 {
					endpoints = append(endpoints, endpoint(i, fmt.Sprintf("10.0.0.%d", i+1), all[c[i]], set[i]))
				}
				r.compare(t, slice("echo-1", discoveryv1.AddressTypeIPv4, endpoints...))
			}
			t.Logf("%d comparisons", r.cases)
		})
	}
}

// TestDualStack: the families are judged apart.
func TestDualStack(t *testing.T) {
	r, all := newRig(t, corev1.IPv4Protocol, corev1.IPv6Protocol), conditions()
	for c := range tuples(3, len(all)) {
		r.compare(t,
			slice("echo-4", discoveryv1.AddressTypeIPv4, endpoint(0, "10.0.0.1", all[c[0]], hints[1]), endpoint(1, "10.0.0.2", all[c[1]], hints[2])),
			slice("echo-6", discoveryv1.AddressTypeIPv6, endpoint(0, "fd00::1", all[c[2]], hints[4])))
	}
	t.Logf("%d comparisons", r.cases)
}
