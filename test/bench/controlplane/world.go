package main

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// world is the mesh that every contender serves. Only assignments change.
type world struct {
	names       []string
	clusters    []*clusterv3.Cluster
	assignments []*endpointv3.ClusterLoadAssignment
}

func newWorld(s setup) *world {
	w := &world{}
	for i := range s.Services {
		name := fmt.Sprintf("service-%04d.default.svc.cluster.local:8080", i)
		w.names = append(w.names, name)
		w.clusters = append(w.clusters, &clusterv3.Cluster{
			Name:                 name,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
				ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			}},
		})
		w.assignments = append(w.assignments, assignment(name, i, s.Endpoints, 8080))
	}
	return w
}

// change replaces the assignment of one service by one whose first endpoint
// has a port that tells the step, and gives it. Steps count from 0.
func (w *world) change(step int) *endpointv3.ClusterLoadAssignment {
	i := step % len(w.names)
	w.assignments[i] = assignment(w.names[i], i, len(w.assignments[i].GetEndpoints()[0].GetLbEndpoints()), portOf(step))
	return w.assignments[i]
}

// portOf is the first endpoint's port after a step.
func portOf(step int) uint32 { return 20000 + uint32(step)%10000 }

func assignment(name string, service, endpoints int, firstPort uint32) *endpointv3.ClusterLoadAssignment {
	locality := &endpointv3.LocalityLbEndpoints{
		Locality:            &corev3.Locality{Region: "region-1", Zone: "zone-1"},
		LoadBalancingWeight: wrapperspb.UInt32(uint32(endpoints)),
	}
	for i := range endpoints {
		port := uint32(8080)
		if i == 0 {
			port = firstPort
		}
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{
			HealthStatus: corev3.HealthStatus_HEALTHY,
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
				Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address:       fmt.Sprintf("10.%d.%d.%d", service/256%256, service%256, i%256),
					PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
				}},
			}}},
		})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{locality}}
}

// checkChange tells whether r holds the assignment of the given step and nothing else.
func checkChange(r *discoveryv3.DeltaDiscoveryResponse, step int) error {
	if len(r.GetResources()) != 1 {
		return fmt.Errorf("a change of one assignment brought %d", len(r.GetResources()))
	}
	var got endpointv3.ClusterLoadAssignment
	if err := r.GetResources()[0].GetResource().UnmarshalTo(&got); err != nil {
		return err
	}
	port := got.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress().GetPortValue()
	if port != portOf(step) {
		return fmt.Errorf("%s has port %d, want %d", got.GetClusterName(), port, portOf(step))
	}
	return nil
}
