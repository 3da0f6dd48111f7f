package drain_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func key(kind mesh.Kind, name string) mesh.Key {
	return mesh.Key{Kind: kind, Namespace: "default", Name: name}
}

// slice makes a slice of the ports given; endpoints are "POD IP [terminating]".
func slice(name string, ports []uint16, endpoints ...string) *mesh.EndpointSlice {
	s := &mesh.EndpointSlice{Meta: mesh.Meta{Key: key(mesh.KindEndpointSlice, name)}, Service: "echo", AddressType: "IPv4"}
	for _, p := range ports {
		s.Ports = append(s.Ports, mesh.SlicePort{Port: p, Protocol: "TCP"})
	}
	for _, text := range endpoints {
		words := strings.Fields(text)
		ready := len(words) < 3
		e := mesh.SliceEndpoint{Addresses: []netip.Addr{netip.MustParseAddr(words[1])}, Ready: &ready}
		if words[0] != "-" {
			e.Pod = key(mesh.KindPod, words[0])
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func pod(name string, ips ...string) *mesh.Pod {
	p := &mesh.Pod{Meta: mesh.Meta{Key: key(mesh.KindPod, name), UID: "uid-" + name}}
	for _, ip := range ips {
		p.IPs = append(p.IPs, netip.MustParseAddr(ip))
	}
	return p
}

func places(p *drain.Places, name string, at time.Time) string {
	all, known := p.Pod("default", name, at)
	if !known {
		return "unknown"
	}
	return strings.Trim(fmt.Sprint(all), "[]")
}

func TestPlaces(t *testing.T) {
	p := drain.NewPlaces()
	check := func(what, pod string, at time.Time, want string) {
		t.Helper()
		if got := places(p, pod, at); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("nothing", "a", now, "unknown")
	p.Put(slice("four", []uint16{80, 81}, "a 10.0.0.1", "b 10.0.0.2"), now)
	p.Put(slice("six", []uint16{80}, "a fd00::1"), now)
	p.Put(slice("other", []uint16{9000}, "a 10.0.0.1"), now)
	check("all families, ports and services", "a", now, "10.0.0.1:80 10.0.0.1:81 10.0.0.1:9000 [fd00::1]:80")
	p.Put(pod("a", "10.0.0.1", "fd00::1"), now)
	check("and its own addresses", "a", now, "10.0.0.1:* 10.0.0.1:80 10.0.0.1:81 10.0.0.1:9000 [fd00::1]:* [fd00::1]:80")
	p.Put(pod("host-1", "192.168.0.1"), now)
	p.Put(pod("host-2", "192.168.0.1"), now)
	p.Put(slice("host", []uint16{9100}, "host-1 192.168.0.1"), now)
	check("pods on the host's network share an address", "host-1", now, "192.168.0.1:9100")
	check("one without a service", "host-2", now, "")

	p.Delete(pod("a").Meta, now)
	p.Put(slice("four", []uint16{80, 81}, "b 10.0.0.2"), now)
	p.Delete(mesh.Meta{Key: key(mesh.KindEndpointSlice, "six")}, now)
	p.Delete(mesh.Meta{Key: key(mesh.KindEndpointSlice, "other")}, now)
	check("just gone", "a", now, "10.0.0.1:80 10.0.0.1:81 10.0.0.1:9000 [fd00::1]:80")
	p.Put(slice("four", []uint16{80, 81}, "b 10.0.0.2", "c 10.0.0.1"), now)
	check("its address belongs to another", "a", now, "10.0.0.1:9000 [fd00::1]:80")
	check("long gone", "a", now.Add(11*time.Minute), "unknown")
	check("not gone", "b", now.Add(11*time.Minute), "10.0.0.2:80 10.0.0.2:81")

	late := pod("host-1").Meta
	late.UID = "another"
	p.Delete(late, now)
	p.Delete(mesh.Meta{Key: key(mesh.KindEndpointSlice, "host")}, now.Add(-time.Hour))
	check("a late deletion of its predecessor", "host-1", now, "")
}

// TestOpenPort: a slice that leaves its port open has the service's own.
func TestOpenPort(t *testing.T) {
	p := drain.NewPlaces()
	p.Put(&mesh.Service{Meta: mesh.Meta{Key: key(mesh.KindService, "echo")}, Ports: []mesh.ServicePort{{Port: 8080}}}, now)
	p.Put(slice("open", []uint16{0}, "a 10.0.0.1"), now)
	if got, want := places(p, "a", now), "10.0.0.1:8080"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTerminating(t *testing.T) {
	p := drain.NewPlaces()
	p.Put(slice("x", []uint16{80}, "a 10.0.0.1 terminating", "b 10.0.0.2"), now)
	p.Put(slice("y", []uint16{80}, "a 10.0.0.1 terminating"), now)
	for text, want := range map[string]bool{"10.0.0.1:80": true, "10.0.0.1:81": false, "10.0.0.2:80": false, "10.0.0.3:80": false} {
		if got := p.Terminating(netip.MustParseAddrPort(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	p.Put(slice("y", []uint16{80}, "a 10.0.0.1"), now)
	if p.Terminating(netip.MustParseAddrPort("10.0.0.1:80")) {
		t.Error("one slice has it ready")
	}
}

func TestEndpointOf(t *testing.T) {
	for text, want := range map[string]string{"10.0.0.1:80": "10.0.0.1:80", "[fd00::1]:80": "[fd00::1]:80", "[::ffff:10.0.0.1]:80": "10.0.0.1:80"} {
		if e, ok := drain.EndpointOf(text); !ok || e.String() != want {
			t.Errorf("%s: %v, %v", text, e, ok)
		}
	}
	for _, text := range []string{"", "10.0.0.1", "10.0.0.1:0", "echo:80", "[fe80::1%eth0]:80", "10.0.0.1:99999"} {
		if e, ok := drain.EndpointOf(text); ok {
			t.Errorf("%q is taken for %v", text, e)
		}
	}
}
