package mitm

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/google/go-cmp/cmp"
	statusv3 "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestDecode(t *testing.T) {
	const (
		ads   = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
		sotw  = ads + "StreamAggregatedResources"
		delta = ads + "DeltaAggregatedResources"
		loads = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
	)
	node := &corev3.Node{Id: "n"}
	assignment, err := anypb.New(&endpointv3.ClusterLoadAssignment{ClusterName: "e"})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := anypb.New(&clusterv3.Cluster{Name: "c"})
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := anypb.New(&discoveryv3.Resource{Name: "w"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		method    string
		direction Direction
		body      proto.Message
		want      Message
		node      string
	}{
		"sotw first": {
			sotw, ToServer, &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: "t", ResourceNames: []string{"a"}},
			Message{TypeURL: "t", Names: []string{"a"}},
			"n",
		},
		"sotw ack": {
			sotw, ToServer, &discoveryv3.DiscoveryRequest{TypeUrl: "t", ResponseNonce: "1", VersionInfo: "v"},
			Message{TypeURL: "t", Nonce: "1", IsAck: true},
			"",
		},
		"sotw nack": {
			sotw, ToServer, &discoveryv3.DiscoveryRequest{TypeUrl: "t", ResponseNonce: "1", ErrorDetail: &statusv3.Status{}},
			Message{TypeURL: "t", Nonce: "1", IsNack: true},
			"",
		},
		"sotw response": {
			sotw, ToClient, &discoveryv3.DiscoveryResponse{TypeUrl: "t", Nonce: "1", Resources: []*anypb.Any{assignment, cluster, wrapped}},
			Message{TypeURL: "t", Nonce: "1", Names: []string{"e", "c", "w"}},
			"",
		},
		"one type's service": {
			"/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints", ToClient, &discoveryv3.DiscoveryResponse{TypeUrl: "t", Nonce: "1"},
			Message{TypeURL: "t", Nonce: "1"},
			"",
		},
		"delta request": {
			delta, ToServer, &discoveryv3.DeltaDiscoveryRequest{
				Node: node, TypeUrl: "t", ResourceNamesSubscribe: []string{"a"}, ResourceNamesUnsubscribe: []string{"b"},
			},
			Message{TypeURL: "t", Names: []string{"a", "b"}},
			"n",
		},
		"delta nack": {
			delta, ToServer, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResponseNonce: "1", ErrorDetail: &statusv3.Status{Code: 3}},
			Message{TypeURL: "t", Nonce: "1", IsNack: true},
			"",
		},
		"delta response": {
			delta, ToClient, &discoveryv3.DeltaDiscoveryResponse{
				TypeUrl: "t", Nonce: "1", Resources: []*discoveryv3.Resource{{Name: "a"}}, RemovedResources: []string{"b"},
			},
			Message{TypeURL: "t", Nonce: "1", Names: []string{"a", "b"}},
			"",
		},
		"load report": {
			loads, ToServer, &loadstatsv3.LoadStatsRequest{Node: node, ClusterStats: []*endpointv3.ClusterStats{{ClusterName: "c"}}},
			Message{TypeURL: LoadReportType, Names: []string{"c"}},
			"n",
		},
		"load request": {
			loads, ToClient, &loadstatsv3.LoadStatsResponse{Clusters: []string{"c"}},
			Message{TypeURL: LoadRequestType, Names: []string{"c"}},
			"",
		},
		"another protocol": {"/grpc.health.v1.Health/Check", ToServer, &discoveryv3.DiscoveryRequest{TypeUrl: "t"}, Message{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := proto.Marshal(c.body)
			if err != nil {
				t.Fatal(err)
			}
			got := Message{Stream: Stream{Method: c.method}, Direction: c.direction, Body: body}
			c.want.Stream, c.want.Direction, c.want.Body = got.Stream, got.Direction, got.Body
			if id := got.decode(); id != c.node {
				t.Errorf("node %q, want %q", id, c.node)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
