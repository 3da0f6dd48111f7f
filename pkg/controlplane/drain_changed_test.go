package controlplane

import (
	"net/netip"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

func listing(t *testing.T, ips ...string) mesh.Update {
	t.Helper()
	locality := &endpointv3.LocalityLbEndpoints{}
	for _, ip := range ips {
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
			}}},
		}}})
	}
	b, err := proto.Marshal(&endpointv3.ClusterLoadAssignment{ClusterName: "c", Endpoints: []*endpointv3.LocalityLbEndpoints{locality}})
	if err != nil {
		t.Fatal(err)
	}
	return mesh.Update{Put: []mesh.Resource{{Type: mesh.TypeEndpoint, Name: "c", Body: b}}}
}

// TestDrainChangedMeanwhile: what the streams say counts only if the endpoint's
// uses are still those that they were asked about.
func TestDrainChangedMeanwhile(t *testing.T) {
	d := newDrains(&Server{store: snapshot.New(snapshot.Config{})})
	target := drain.Target{Endpoint: drain.Endpoint{Address: netip.MustParseAddr("10.0.0.1"), Port: 80}}
	publish := func(ips ...string) {
		u := listing(t, ips...)
		d.history.Note(u, d.server.store.Snapshot().Generation()+1, time.Now())
		d.server.store.Publish(u, time.Now())
	}
	publish("10.0.0.1")
	publish()
	now := time.Now()
	f, recall := d.facts(target, now)
	if d.changed(target, f.Endpoints, recall, now) {
		t.Error("nothing has changed")
	}
	publish("10.0.0.2")
	if d.changed(target, f.Endpoints, recall, now) {
		t.Error("something else has changed")
	}
	publish("10.0.0.1")
	if !d.changed(target, f.Endpoints, recall, now) {
		t.Error("it is listed again, and that is no change")
	}
	publish()
	if !d.changed(target, f.Endpoints, recall, now) {
		t.Error("it was listed in between, and that is no change")
	}
}
