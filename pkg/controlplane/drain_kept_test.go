package controlplane_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// usable tells whether the only resource of a response lists an address as usable.
func usable(t *testing.T, r *xdstest.Response, ip string) bool {
	t.Helper()
	if len(r.Resources) != 1 {
		t.Fatalf("%d resources", len(r.Resources))
	}
	return formOf(t, r.Resources[0]).usable[ip]
}

// TestDrainedStaysDrained: once the barrier has said that nobody sends to a pod,
// nobody is told to, also when those beside it terminate and nothing is ready any more.
func TestDrainedStaysDrained(t *testing.T) {
	for _, target := range []drain.Target{podA, {Endpoint: mustEndpoint("10.0.0.1:8080")}} {
		t.Run(target.String(), func(t *testing.T) {
			each(t, func(t *testing.T, protocol xdstest.Protocol) {
				source, p := grown(t)
				source.put(&mesh.Pod{Meta: mesh.Meta{Key: key(mesh.KindPod, "a"), UID: "1"}})
				s := p.open(t, protocol, "n")
				s.Subscribe(mesh.TypeEndpoint, echo)
				acked(s)
				settle()
				terminate(source)
				acked(s)
				settle()
				want(t, "beside a ready one", ask(t, p.Server, target, 0), "drained")
				source.put(sliceOf("echo", at{pod: "a", ip: "10.0.0.1", terminating: true}, at{pod: "b", ip: "10.0.0.2", terminating: true}))
				settle()
				want(t, "the last that is not drained", ask(t, p.Server, drain.Target{Namespace: "default", Pod: "b"}, 0), "last_endpoint, listed n")
				want(t, "drained before", ask(t, p.Server, target, 0), "drained")
				source.put(sliceOf("echo", at{pod: "a", ip: "10.0.0.1", terminating: true}))
				r := acked(s)
				if usable(t, r, "10.0.0.1") {
					t.Error("the only one left is used again")
				}
				settle()
				want(t, "the only one left", ask(t, p.Server, target, 0), "drained")
				late := p.open(t, protocol, "late")
				late.Subscribe(mesh.TypeEndpoint, echo)
				if usable(t, acked(late), "10.0.0.1") {
					t.Error("one that comes late is told to use it")
				}
				source.put(sliceOf("echo", at{pod: "a", ip: "10.0.0.1"}))
				if !usable(t, acked(s), "10.0.0.1") {
					t.Error("it is ready again, and not used")
				}
			})
		})
	}
}

// TestDrainedInEveryView: a node that comes after the answer, in a view of which the pod is the only endpoint, is not told to use it.
func TestDrainedInEveryView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := serviceOf("echo")
		service.InternalTrafficLocal = true
		slice := sliceOf("echo", at{pod: "a", ip: "10.0.0.1"}, at{pod: "b", ip: "10.0.0.2"})
		slice.Endpoints[0].NodeName, slice.Endpoints[1].NodeName = "n1", "n2"
		source := newObjects(service, slice)
		p := startPlane(t, source)
		time.Sleep(drain.Grace + time.Second) // bubble time
		gone := *slice
		gone.Endpoints = append([]mesh.SliceEndpoint(nil), slice.Endpoints...)
		gone.Endpoints[0].Ready, gone.Endpoints[0].Terminating = new(false), new(true)
		source.put(&gone)
		settle()
		want(t, "nobody has that view", ask(t, p.Server, podA, 0), "drained")
		metadata, err := structpb.NewStruct(map[string]any{"node": "n1"})
		if err != nil {
			t.Fatal(err)
		}
		late := xdstest.Open(t, p.conn, xdstest.Delta, &corev3.Node{Id: "late", Metadata: metadata})
		late.Subscribe(mesh.TypeEndpoint, echo)
		if usable(t, acked(late), "10.0.0.1") {
			t.Error("one that comes late is told to use it")
		}
	})
}

// TestDrainOfStatefulSet: a pod of a headless service has a cluster of its own address, and names of its own.
func TestDrainOfStatefulSet(t *testing.T) {
	each(t, func(t *testing.T, protocol xdstest.Protocol) {
		service := serviceOf("echo")
		service.Headless = true
		slice := func(terminating bool) *mesh.EndpointSlice {
			s := sliceOf("echo", at{pod: "a", ip: "10.0.0.1", terminating: terminating}, at{pod: "b", ip: "10.0.0.2"})
			s.Endpoints[0].Hostname, s.Endpoints[1].Hostname = "echo-0", "echo-1"
			return s
		}
		source := newObjects(service, slice(false), &mesh.Pod{Meta: mesh.Meta{Key: key(mesh.KindPod, "a"), UID: "1"}, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
		p := startPlane(t, source)
		time.Sleep(drain.Grace + time.Second) // bubble time
		s := p.open(t, protocol, "n")
		s.Subscribe(mesh.TypeEndpoint, echo)
		acked(s)
		settle()
		want(t, "ready", ask(t, p.Server, podA, 0), "listed, listed n")
		source.put(slice(true))
		acked(s)
		settle()
		want(t, "terminating", ask(t, p.Server, podA, 0), "drained")
	})
}
