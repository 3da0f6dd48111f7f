package history

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"
)

// place is where and how an endpoint is, in these tests.
type place struct {
	health   corev3.HealthStatus
	locality int
	weight   uint32
}

// assignment serialises endpoints by address; nil for none.
func assignment(t interface{ Fatal(...any) }, places map[string]place) []byte {
	if places == nil {
		return nil
	}
	cla := &endpointv3.ClusterLoadAssignment{ClusterName: "c", Endpoints: []*endpointv3.LocalityLbEndpoints{{}, {Priority: 1}}}
	for _, address := range slices.Sorted(maps.Keys(places)) {
		p := places[address]
		e := &endpointv3.LbEndpoint{
			HealthStatus: p.health,
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
				Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
				}},
			}}},
		}
		if p.weight > 0 {
			e.LoadBalancingWeight = wrapperspb.UInt32(p.weight)
		}
		l := cla.GetEndpoints()[p.locality]
		l.LbEndpoints = append(l.LbEndpoints, e)
	}
	b, err := proto.Marshal(cla)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDiff(t *testing.T) {
	before := map[string]place{
		"10.0.0.1": {}, "10.0.0.2": {}, "10.0.0.3": {}, "10.0.0.4": {health: corev3.HealthStatus_HEALTHY}, "fd00::1": {},
	}
	after := map[string]place{
		"10.0.0.1": {}, "10.0.0.2": {health: corev3.HealthStatus_DRAINING}, "10.0.0.4": {weight: 3}, "fd00::1": {locality: 1}, "10.0.0.5": {},
	}
	want := []EndpointChange{
		{"10.0.0.2:80", "HEALTHY", "DRAINING"},
		{"10.0.0.3:80", "HEALTHY", ""},
		{"10.0.0.4:80", "HEALTHY", "HEALTHY"},
		{"10.0.0.5:80", "", "HEALTHY"},
	}
	got, more := Diff(assignment(t, before), assignment(t, after))
	if diff := cmp.Diff(want, got); diff != "" || more != 0 {
		t.Errorf("%d more (-want +got):\n%s", more, diff)
	}
	gone, _ := Diff(assignment(t, before), nil)
	if len(gone) != len(before) || gone[4] != (EndpointChange{"[fd00::1]:80", "HEALTHY", ""}) {
		t.Errorf("all gone: %+v", gone)
	}
}

func TestDiffIsBounded(t *testing.T) {
	many := map[string]place{}
	for i := range maxEndpoints + 10 {
		many[fmt.Sprintf("10.0.%d.%d", i/256, i%256)] = place{}
	}
	if got, more := Diff(nil, assignment(t, many)); len(got) != maxEndpoints || more != 10 {
		t.Errorf("%d and %d more", len(got), more)
	}
}

// Diff is what comparing the decoded endpoints gives.
func TestDiffAgainstDecoding(t *testing.T) {
	draw := rapid.MapOf(rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}), rapid.Custom(func(t *rapid.T) place {
		return place{
			health:   rapid.SampledFrom([]corev3.HealthStatus{corev3.HealthStatus_HEALTHY, corev3.HealthStatus_DRAINING, corev3.HealthStatus_UNHEALTHY}).Draw(t, "health"),
			locality: rapid.IntRange(0, 1).Draw(t, "locality"), weight: rapid.Uint32Range(0, 2).Draw(t, "weight"),
		}
	}))
	rapid.Check(t, func(t *rapid.T) {
		before, after := draw.Draw(t, "before"), draw.Draw(t, "after")
		var want []EndpointChange
		for _, address := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"} {
			a, was := before[address]
			b, is := after[address]
			a.locality, b.locality = 0, 0
			if was == is && a == b {
				continue
			}
			c := EndpointChange{Endpoint: address + ":80"}
			if was {
				c.Was = a.health.String()
			}
			if is {
				c.Now = b.health.String()
			}
			want = append(want, c)
		}
		got, _ := Diff(assignment(t, before), assignment(t, after))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// What is no assignment is no endpoint, and never a panic.
func FuzzDiff(f *testing.F) {
	good := assignment(f, map[string]place{"10.0.0.1": {}, "fd00::1": {locality: 1}})
	f.Add(good, good[:len(good)-3])
	f.Add([]byte{0x12, 0xff}, []byte(nil))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		if got, _ := Diff(before, bytes.Clone(before)); len(got) > 0 {
			t.Errorf("a form differs from itself: %+v", got)
		}
		Diff(before, after)
	})
}
