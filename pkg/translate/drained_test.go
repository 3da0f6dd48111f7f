package translate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/translate"
)

const drainedName = "echo.default.svc.cluster.local:80"

func named(kind mesh.Kind, name string) mesh.Key {
	return mesh.Key{Kind: kind, Namespace: "default", Name: name}
}

func echoService() *mesh.Service {
	return &mesh.Service{Meta: mesh.Meta{Key: named(mesh.KindService, "echo")}, Ports: []mesh.ServicePort{{Port: 80, Protocol: "TCP"}}}
}

// endpointsOf makes a slice; endpoints are "POD[/UID] NUMBER [terminating] [node=NODE]", with "-" for no pod.
func endpointsOf(name string, endpoints ...string) *mesh.EndpointSlice {
	s := &mesh.EndpointSlice{
		Meta: mesh.Meta{Key: named(mesh.KindEndpointSlice, name)}, Service: "echo", AddressType: "IPv4",
		Ports: []mesh.SlicePort{{Port: 80, Protocol: "TCP"}},
	}
	for _, text := range endpoints {
		words := strings.Fields(text)
		pod, uid, _ := strings.Cut(words[0], "/")
		terminating := slices.Contains(words, "terminating")
		e := mesh.SliceEndpoint{
			Addresses: []netip.Addr{netip.MustParseAddr("10.0.0." + words[1])}, PodUID: uid, Ready: new(!terminating), Serving: new(true), Terminating: &terminating,
		}
		if pod != "-" {
			e.Pod = named(mesh.KindPod, pod)
		}
		for _, w := range words {
			if node, ok := strings.CutPrefix(w, "node="); ok {
				e.NodeName = node
			}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// healths are the last numbers of the addresses in an assignment, "!" after those that drain.
func healths(t *testing.T, body []byte) string {
	t.Helper()
	var out []string
	for _, l := range parse(t, mesh.TypeEndpoint, body).(*endpointv3.ClusterLoadAssignment).GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			address := e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()
			text := address[strings.LastIndexByte(address, '.')+1:]
			if e.GetHealthStatus() == corev3.HealthStatus_DRAINING {
				text += "!"
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, " ")
}

func drainedPod(pod, uid string, numbers ...int) translate.Drained {
	d := translate.Drained{UID: uid}
	if pod != "" {
		d.Pod = named(mesh.KindPod, pod)
	}
	for _, n := range numbers {
		d.Endpoints = append(d.Endpoints, netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:80", n)))
	}
	return d
}

// drainedState is a state that takes what KeepDrained gives as well.
type drainedState struct {
	*state
	t *testing.T
}

func (s drainedState) drained(d translate.Drained) mesh.Update {
	u := s.KeepDrained(d, mesh.Cause{})
	for _, r := range u.Put {
		s.resources[mesh.ResourceName{Type: r.Type, Name: r.Name}] = r
	}
	return u
}

func (s drainedState) want(what, want string) {
	s.t.Helper()
	if got := healths(s.t, s.resources[mesh.ResourceName{Type: mesh.TypeEndpoint, Name: drainedName}].Body); got != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func drainedWorld(t *testing.T, slice *mesh.EndpointSlice) drainedState {
	t.Helper()
	s := drainedState{newState(), t}
	s.apply(t, puts(echoService(), slice)...)
	return s
}

// TestDrainedStaysDrained: a pod that was drained beside a ready one is not used again when that one terminates.
func TestDrainedStaysDrained(t *testing.T) {
	for _, test := range []struct {
		name    string
		drained translate.Drained
	}{
		{"pod", drainedPod("a", "1", 1)},
		{"pod of unknown UID", drainedPod("a", "", 1)},
		{"endpoint", drainedPod("", "", 1)},
		{"every port", translate.Drained{Pod: named(mesh.KindPod, "a"), UID: "1", Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:0")}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := drainedWorld(t, endpointsOf("echo-1", "a/1 1 terminating", "b/2 2", "c/3 3"))
			s.want("before", "1! 2 3")
			if u := s.drained(test.drained); len(u.Put) > 0 {
				t.Errorf("%d resources changed", len(u.Put))
			}
			s.apply(t, puts(endpointsOf("echo-1", "a/1 1 terminating", "b/2 2 terminating", "c/3 3"))...)
			s.want("another terminates", "1! 2! 3")
			s.apply(t, puts(endpointsOf("echo-1", "a/1 1 terminating", "b/2 2 terminating", "c/3 3 terminating"))...)
			s.want("all terminate", "1! 2 3")
			s.drained(drainedPod("b", "2", 2))
			s.want("the second is drained", "1! 2! 3")
			s.drained(drainedPod("c", "3", 3))
			s.want("all are drained", "1! 2! 3!")
			s.apply(t, puts(endpointsOf("echo-1", "a/1 1 terminating", "b/2 2 terminating", "d/4 4"))...)
			s.want("a new one is ready", "1! 2! 4")
		})
	}
}

// TestDrainedTellsItsChange: a view in which the pod is the only one is changed at once, by a cause that names it.
func TestDrainedTellsItsChange(t *testing.T) {
	service := echoService()
	service.InternalTrafficLocal = true
	s := drainedState{newState(), t}
	s.apply(t, puts(service, endpointsOf("echo-1", "a/1 1 terminating node=n1", "b/2 2 node=n2"))...)
	view := mesh.View{Node: "n1"}
	shape := func() string {
		return healths(t, s.resources[mesh.ResourceName{Type: mesh.TypeEndpoint, Name: drainedName}].Shape(view))
	}
	if got := shape(); got != "1" {
		t.Fatalf("on its own node: %q, want the only one there", got)
	}
	u := s.KeepDrained(drainedPod("a", "1", 1), mesh.Cause{Object: named(mesh.KindPod, "a")})
	if len(u.Put) != 1 || u.Put[0].Cause.Object != named(mesh.KindPod, "a") {
		t.Fatalf("update %+v", u)
	}
	s.resources[mesh.ResourceName{Type: mesh.TypeEndpoint, Name: drainedName}] = u.Put[0]
	if got := shape(); got != "1!" {
		t.Errorf("on its own node, drained: %q", got)
	}
	s.want("elsewhere", "1! 2")
	if u := s.KeepDrained(drainedPod("", "", 2), mesh.Cause{}); len(u.Put) > 0 {
		t.Errorf("one that is ready: %+v", u)
	}
}

// TestDrainedEnds: what is remembered is of one pod, and ends with it.
func TestDrainedEnds(t *testing.T) {
	alone := func(uid string) []translate.Change { return puts(endpointsOf("echo-1", "a/"+uid+" 1 terminating")) }
	deleted := translate.Change{Delete: mesh.Meta{Key: named(mesh.KindPod, "a"), UID: "1"}}
	t.Run("it was ready again", func(t *testing.T) {
		s := drainedWorld(t, endpointsOf("echo-1", "a/1 1 terminating", "b/2 2"))
		s.drained(drainedPod("a", "1", 1))
		s.apply(t, puts(endpointsOf("echo-1", "a/1 1"))...)
		s.want("ready", "1")
		s.apply(t, alone("1")...)
		s.want("the only one, not drained since", "1")
	})
	t.Run("another pod", func(t *testing.T) {
		s := drainedWorld(t, endpointsOf("echo-1", "a/1 1 terminating", "b/2 2"))
		s.drained(drainedPod("a", "1", 1))
		s.apply(t, alone("9")...)
		s.want("of the same name and address", "1")
	})
	t.Run("on its way between slices", func(t *testing.T) {
		s := drainedWorld(t, endpointsOf("echo-1", "a/1 1 terminating", "b/2 2"))
		s.drained(drainedPod("a", "1", 1))
		s.apply(t, puts(endpointsOf("echo-1", "b/2 2"))...)
		s.want("in none", "2")
		s.apply(t, puts(endpointsOf("echo-1"), endpointsOf("echo-2", "a/1 1 terminating"))...)
		s.want("in another", "1!")
	})
	t.Run("its Pod goes first", func(t *testing.T) {
		s := drainedWorld(t, endpointsOf("echo-1", "a/1 1 terminating", "b/2 2"))
		s.drained(drainedPod("a", "1", 1))
		s.apply(t, deleted)
		s.apply(t, alone("1")...)
		s.want("the slice lists it still", "1!")
		s.apply(t, puts(endpointsOf("echo-1"))...)
		s.apply(t, alone("1")...)
		s.want("it was gone", "1")
	})
	t.Run("its slice goes first", func(t *testing.T) {
		s := drainedWorld(t, endpointsOf("echo-1", "a/1 1 terminating", "b/2 2"))
		s.drained(drainedPod("a", "1", 1))
		s.apply(t, translate.Change{Delete: mesh.Meta{Key: named(mesh.KindEndpointSlice, "echo-1")}})
		s.apply(t, deleted)
		s.apply(t, alone("1")...)
		s.want("it was gone", "1")
	})
	t.Run("no pod", func(t *testing.T) {
		s := drainedWorld(t, endpointsOf("echo-1", "- 1 terminating", "- 2"))
		s.drained(drainedPod("", "", 1))
		s.apply(t, puts(endpointsOf("echo-1", "- 1 terminating"))...)
		s.want("drained", "1!")
		s.apply(t, puts(endpointsOf("echo-1", "- 2"))...)
		s.apply(t, puts(endpointsOf("echo-1", "- 1 terminating"))...)
		s.want("it was gone", "1")
	})
	t.Run("too many", func(t *testing.T) {
		s := drainedWorld(t, endpointsOf("echo-1", "a/1 1 terminating", "b/2 2"))
		s.drained(drainedPod("a", "1", 1))
		many := translate.Drained{Pod: named(mesh.KindPod, "x"), UID: "x"}
		for port := range 10_000 {
			many.Endpoints = append(many.Endpoints, netip.AddrPortFrom(netip.MustParseAddr("10.9.9.9"), uint16(port+1)))
		}
		s.drained(many)
		s.apply(t, alone("1")...)
		s.want("the oldest is forgotten", "1")
	})
}
