package translate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/translate"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The names are chosen to collide: "svc" is a namespace too, pods have the names of services.
var (
	namespaces = []string{"a", "svc"}
	names      = []string{"a", "web"}
	hostnames  = []string{"", "a", "web"}
	nodes      = []string{"n1", "n2", "n3"}
	zones      = []string{"", "z1", "z2"}
)

func pick[T any](t *rapid.T, from []T) T { return rapid.SampledFrom(from).Draw(t, "pick") }

// some draws a few of from.
func some[T any](t *rapid.T, from []T) []T {
	return slices.DeleteFunc(slices.Clone(from), func(T) bool { return rapid.Bool().Draw(t, "drop") })
}

func drawService(t *rapid.T, key mesh.Key) mesh.Object {
	s := &mesh.Service{
		Meta:                 mesh.Meta{Key: key},
		Type:                 pick(t, []string{"", "ClusterIP", "ClusterIP", "ExternalName"}),
		Headless:             rapid.Bool().Draw(t, "headless"),
		ClusterIPs:           some(t, []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1")}),
		ClientIPAffinity:     rapid.Bool().Draw(t, "affinity"),
		InternalTrafficLocal: rapid.Bool().Draw(t, "local"),
		Ports: some(t, []mesh.ServicePort{
			{Name: "http", Port: 80, Protocol: "TCP"},
			{Name: "alt", Port: 8080, Protocol: "TCP", AppProtocol: pick(t, []string{"", "tcp", "grpc"})},
			{Name: "dns", Port: 8080, Protocol: "UDP"},
		}),
	}
	if s.Type == "ExternalName" {
		s.ExternalName = pick(t, []string{"", "x.example.com"})
	}
	if rapid.Bool().Draw(t, "annotated") {
		s.Annotations = map[string]string{"lb-policy": pick(t, []string{"random", "wrong"}), "opaque-ports": pick(t, []string{"80", "http,8080", "9"})}
	}
	return s
}

func drawSlice(t *rapid.T, key mesh.Key) mesh.Object {
	s := &mesh.EndpointSlice{
		Meta:        mesh.Meta{Key: key},
		Service:     pick(t, append([]string{""}, names...)),
		AddressType: pick(t, []string{"IPv4", "IPv4", "IPv6", "FQDN"}),
		Ports: some(t, []mesh.SlicePort{
			{Name: "http", Port: pick(t, []uint16{0, 9000}), Protocol: "TCP"},
			{Name: "alt", Port: 9001, Protocol: "TCP"},
		}),
	}
	maybe := func() *bool { return pick(t, []*bool{nil, new(true), new(false)}) }
	for range rapid.IntRange(0, 4).Draw(t, "endpoints") {
		n := strconv.Itoa(rapid.IntRange(1, 4).Draw(t, "address"))
		e := mesh.SliceEndpoint{
			Ready: maybe(), Serving: maybe(), Terminating: maybe(),
			Hostname: pick(t, hostnames), NodeName: pick(t, append([]string{""}, nodes...)), Zone: pick(t, zones),
		}
		if rapid.IntRange(0, 3).Draw(t, "hinted") > 0 {
			e.ForZones, e.ForNodes = []string{pick(t, zones[1:])}, some(t, nodes)
		}
		switch s.AddressType {
		case "IPv4":
			e.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0." + n)}
		case "IPv6":
			e.Addresses = []netip.Addr{netip.MustParseAddr("fd00::" + n)}
		default:
			e.Hosts = []string{"h" + n + ".example.com"}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// drawer makes another form of the object of a key.
func drawer(t *rapid.T, key mesh.Key) mesh.Object {
	switch key.Kind {
	case mesh.KindService:
		return drawService(t, key)
	case mesh.KindEndpointSlice:
		return drawSlice(t, key)
	case mesh.KindNode:
		return &mesh.Node{Meta: mesh.Meta{Key: key}, Zone: pick(t, zones), Region: pick(t, []string{"", "r1", "r2"})}
	case mesh.KindPod:
		return &mesh.Pod{Meta: mesh.Meta{Key: key}, Ready: rapid.Bool().Draw(t, "ready")}
	case mesh.KindNamespace:
		return &mesh.Namespace{Meta: mesh.Meta{Key: key}}
	case mesh.KindFile:
	}
	panic("kind " + key.Kind)
}

// keys are all objects that a drawn world can hold.
func keys() []mesh.Key {
	var out []mesh.Key
	for _, ns := range namespaces {
		for _, name := range names {
			out = append(out, mesh.Key{Kind: mesh.KindService, Namespace: ns, Name: name})
		}
		for i := range 3 {
			out = append(out, mesh.Key{Kind: mesh.KindEndpointSlice, Namespace: ns, Name: fmt.Sprint("s", i)})
		}
		out = append(out, mesh.Key{Kind: mesh.KindPod, Namespace: ns, Name: "a"}, mesh.Key{Kind: mesh.KindNamespace, Name: ns})
	}
	for _, n := range nodes {
		out = append(out, mesh.Key{Kind: mesh.KindNode, Name: n})
	}
	return out
}

// history draws changes of a world, each object at rising versions, and gives what exists in the end.
func history(t *rapid.T) (changes []translate.Change, final map[mesh.Key]mesh.Object) {
	final = make(map[mesh.Key]mesh.Object)
	uid := make(map[mesh.Key]int)
	for version := range rapid.IntRange(1, 40).Draw(t, "steps") {
		key := pick(t, keys())
		rv := strconv.Itoa(version + 1)
		if held, ok := final[key]; ok && rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
			m := *held.Metadata()
			m.ResourceVersion = rv
			changes = append(changes, translate.Change{Delete: m})
			delete(final, key)
			uid[key]++
			continue
		}
		o := drawer(t, key)
		o.Metadata().UID, o.Metadata().ResourceVersion = fmt.Sprint(key, uid[key]), rv
		changes = append(changes, translate.Change{Put: o})
		final[key] = o
	}
	return changes, final
}

// batches applies changes in batches of drawn sizes.
func (s *state) batches(t *rapid.T, changes []translate.Change) {
	for len(changes) > 0 {
		n := rapid.IntRange(1, len(changes)).Draw(t, "batch")
		s.apply(t, changes[:n]...)
		changes = changes[n:]
	}
}

// TestIncrementalEqualsFromScratch: any history, in any batches, ends in the
// bytes and problems that its final objects give in any order; every state on
// the way is one that clients accept.
func TestIncrementalEqualsFromScratch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		changes, final := history(t)
		walked := newState()
		for rest := changes; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			walked.apply(t, rest[:n]...)
			walked.check(t)
			rest = rest[n:]
		}
		var last []mesh.Object
		for _, key := range keys() {
			if o, ok := final[key]; ok {
				last = append(last, o)
			}
		}
		scratch := newState()
		scratch.apply(t)
		scratch.batches(t, puts(rapid.Permutation(last).Draw(t, "order")...))
		if diff := cmp.Diff(scratch.dump(), walked.dump()); diff != "" {
			t.Fatalf("(-from scratch +incremental):\n%s", diff)
		}
	})
}

// TestApplyIsIdempotent: the same objects again, late older forms and late
// deletions change nothing and translate nothing.
func TestApplyIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		changes, final := history(t)
		s := newState()
		s.batches(t, changes)
		before, translations := s.dump(), s.Translations()
		var again []translate.Change
		for _, c := range changes {
			if c.Put == nil {
				// Its object may have come back under another UID.
				if _, ok := final[c.Delete.Key]; ok {
					again = append(again, c)
				}
				continue
			}
			if now, ok := final[c.Put.Metadata().Key]; ok && now.Metadata().UID == c.Put.Metadata().UID {
				again = append(again, c, translate.Change{Delete: earlier(c.Put.Metadata())})
			}
		}
		u := s.apply(t, again...)
		if len(u.Put) > 0 || len(u.Remove) > 0 || s.Translations() != translations {
			t.Fatalf("not idempotent: put %d, removed %d, translated %d", len(u.Put), len(u.Remove), s.Translations()-translations)
		}
		if diff := cmp.Diff(before, s.dump()); diff != "" {
			t.Fatalf("(-before +after):\n%s", diff)
		}
	})
}

func earlier(m *mesh.Meta) mesh.Meta {
	e := *m
	e.ResourceVersion = "0"
	return e
}

// TestOrdersOfArrival walks all orders of one of each kind, one at a time.
func TestOrdersOfArrival(t *testing.T) {
	all := []mesh.Object{
		&mesh.Service{Meta: mesh.Meta{Key: key(mesh.KindService, "a")}, Headless: true, Ports: []mesh.ServicePort{{Port: 80, Protocol: "TCP"}}, Annotations: map[string]string{"drain": "never"}},
		&mesh.EndpointSlice{
			Meta: mesh.Meta{Key: key(mesh.KindEndpointSlice, "a-1")}, Service: "a", AddressType: "IPv4", Ports: []mesh.SlicePort{{Port: 9000, Protocol: "TCP"}},
			Endpoints: []mesh.SliceEndpoint{{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, NodeName: "n1", Zone: "z1", Hostname: "a-0", Pod: key(mesh.KindPod, "a-0")}},
		},
		&mesh.Pod{Meta: mesh.Meta{Key: key(mesh.KindPod, "a-0")}, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, NodeName: "n1", Ready: true},
		&mesh.Node{Meta: mesh.Meta{Key: mesh.Key{Kind: mesh.KindNode, Name: "n1"}}, Zone: "z1", Region: "r1"},
	}
	var want map[string][]string
	permutations(all, func(order []mesh.Object) {
		s := newState()
		for _, o := range order {
			s.apply(t, puts(o)...)
			s.check(t)
		}
		if want == nil {
			want = s.dump()
		}
		if len(s.Problems()) != 1 {
			t.Errorf("problems: %v", s.Problems())
		}
		if diff := cmp.Diff(want, s.dump()); diff != "" {
			t.Errorf("another order (-first +this):\n%s", diff)
		}
		// And away again, in the same order: nothing of it stays.
		for _, o := range order {
			s.apply(t, translate.Change{Delete: *o.Metadata()})
		}
		if len(s.resources) != 1 || len(s.Problems()) != 0 {
			t.Errorf("left over: %v, %v", s.dump(), s.Problems())
		}
	})
}

func permutations(of []mesh.Object, do func([]mesh.Object)) {
	var walk func(done, rest []mesh.Object)
	walk = func(done, rest []mesh.Object) {
		if len(rest) == 0 {
			do(done)
		}
		for i := range rest {
			walk(append(slices.Clone(done), rest[i]), slices.Delete(slices.Clone(rest), i, i+1))
		}
	}
	walk(nil, of)
}

func key(kind mesh.Kind, name string) mesh.Key {
	return mesh.Key{Kind: kind, Namespace: "default", Name: name}
}
