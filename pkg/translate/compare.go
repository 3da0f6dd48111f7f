package translate

import (
	"maps"
	"slices"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// olderThan tells whether a is an earlier form of the object b: of the same
// UID, and with a smaller resourceVersion where both are numbers, unless the
// source went back to an older state in between. Versions from files, and of
// another UID, cannot be compared and are never older.
func olderThan(a, b *mesh.Meta) bool {
	if a.UID != b.UID {
		return false
	}
	if a.Rewinds != b.Rewinds {
		return a.Rewinds < b.Rewinds
	}
	x, okX := number(a.ResourceVersion)
	y, okY := number(b.ResourceVersion)
	if !okX || !okY {
		return false
	}
	if len(x) != len(y) {
		return len(x) < len(y)
	}
	return x < y
}

// number gives the digits of a decimal number of any size, without leading zeros.
func number(s string) (string, bool) {
	if s == "" {
		return "", false
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return "", false
		}
	}
	return strings.TrimLeft(s, "0"), true
}

// sameMeaning tells whether two objects differ in their Meta at most.
func sameMeaning(a, b mesh.Object) bool {
	switch a := a.(type) {
	case *mesh.Service:
		b, ok := b.(*mesh.Service)
		return ok && sameService(a, b)
	case *mesh.EndpointSlice:
		b, ok := b.(*mesh.EndpointSlice)
		return ok && sameSlice(a, b)
	}
	return false
}

func sameService(a, b *mesh.Service) bool {
	return a.Type == b.Type && a.Headless == b.Headless && a.ExternalName == b.ExternalName &&
		a.Selector == b.Selector && a.PublishNotReadyAddresses == b.PublishNotReadyAddresses &&
		a.ClientIPAffinity == b.ClientIPAffinity && a.ClientIPAffinityTimeout == b.ClientIPAffinityTimeout &&
		a.InternalTrafficLocal == b.InternalTrafficLocal && a.TrafficDistribution == b.TrafficDistribution &&
		slices.Equal(a.ClusterIPs, b.ClusterIPs) && slices.Equal(a.Ports, b.Ports) && maps.Equal(a.Annotations, b.Annotations)
}

func sameSlice(a, b *mesh.EndpointSlice) bool {
	return a.Service == b.Service && a.AddressType == b.AddressType &&
		slices.Equal(a.Ports, b.Ports) && slices.EqualFunc(a.Endpoints, b.Endpoints, sameEndpoint)
}

func sameEndpoint(a, b mesh.SliceEndpoint) bool {
	return slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.Hosts, b.Hosts) &&
		sameBool(a.Ready, b.Ready) && sameBool(a.Serving, b.Serving) && sameBool(a.Terminating, b.Terminating) &&
		a.Hostname == b.Hostname && a.NodeName == b.NodeName && a.Zone == b.Zone &&
		slices.Equal(a.ForZones, b.ForZones) && slices.Equal(a.ForNodes, b.ForNodes) &&
		a.Pod == b.Pod && a.PodUID == b.PodUID
}

func sameBool(a, b *bool) bool { return a == b || a != nil && b != nil && *a == *b }
