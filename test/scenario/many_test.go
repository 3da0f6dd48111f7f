package scenario

import (
	"fmt"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// TestThousandsOfNames: xDS protocol, "How the client specifies what resources to
// return". One stream asks for 5,000 assignments, one at a time, as on-demand
// clients do; each is answered alone, changes come alone, and giving all of
// them back one at a time leaves nothing.
func TestThousandsOfNames(t *testing.T) {
	const count = 5000
	synctest.Test(t, func(t *testing.T) {
		system := start(t)
		var u mesh.Update
		for i := range count {
			u.Put = append(u.Put, xdstest.Resource(mesh.TypeEndpoint, fmt.Sprint("e", i), "v1"))
		}
		system.Publish(u)
		s := xdstest.Open(t, xdstest.Serve(t, system.Register, system.Options...), xdstest.Delta, &corev3.Node{Id: "n"})
		for i := range count {
			s.Subscribe(mesh.TypeEndpoint, fmt.Sprint("e", i))
			s.ExpectAcked(fmt.Sprintf("eds +e%d@v1", i))
		}
		s.Silent()
		system.Publish(mesh.Update{Put: []mesh.Resource{xdstest.Resource(mesh.TypeEndpoint, "e77", "v2")}})
		s.ExpectAcked("eds +e77@v2")
		s.Silent()
		if got, want := system.Audit(nil), fmt.Sprintf("n fresh\n  eds fresh subscribed=%d\n", count); got != want {
			t.Errorf("audit %q, want %q", got, want)
		}
		for i := range count {
			s.Unsubscribe(mesh.TypeEndpoint, fmt.Sprint("e", i))
		}
		system.Publish(mesh.Update{Put: []mesh.Resource{xdstest.Resource(mesh.TypeEndpoint, "e78", "v2")}})
		s.Silent()
		if got, want := system.Audit(nil), "n fresh\n  eds fresh subscribed=0\n"; got != want {
			t.Errorf("audit %q, want %q", got, want)
		}
	})
}

// TestThousandsOfNamesInOneRequest: the same client after a reconnect, with all
// its names and versions in one request; only what differs comes.
func TestThousandsOfNamesInOneRequest(t *testing.T) {
	const count = 5000
	synctest.Test(t, func(t *testing.T) {
		system := start(t)
		var u mesh.Update
		names, initial := make([]string, 0, count), make(map[string]string, count)
		for i := range count {
			r := xdstest.Resource(mesh.TypeEndpoint, fmt.Sprint("e", i), "v1")
			u.Put = append(u.Put, r)
			names, initial[r.Name] = append(names, r.Name), string(mesh.VersionOf(r.Body))
		}
		system.Publish(u)
		system.Publish(mesh.Update{Put: []mesh.Resource{xdstest.Resource(mesh.TypeEndpoint, "e77", "v2")}})
		conn := xdstest.Serve(t, system.Register, system.Options...)
		delta := xdstest.Open(t, conn, xdstest.Delta, &corev3.Node{Id: "n"})
		delta.Send(xdstest.Request{Type: mesh.TypeEndpoint, Subscribe: names, Initial: initial})
		delta.ExpectAcked("eds +e77@v2")
		delta.Silent()

		sotw := xdstest.Open(t, conn, xdstest.SotW, &corev3.Node{Id: "s"})
		sotw.Subscribe(mesh.TypeEndpoint, names...)
		r := sotw.Expect()
		if len(r.Resources) != count {
			t.Fatalf("%d resources, want %d", len(r.Resources), count)
		}
		sotw.Ack(r)
		sotw.Silent()
	})
}
