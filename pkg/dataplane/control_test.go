package dataplane_test

import (
	"net"
	"strconv"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// control is the least control plane: it answers each delta request with all
// that it has of the names asked, and pushes when endpoints are set.
type control struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	mu       sync.Mutex // guards all below
	clusters map[string][]string
	// aliases is the name of a cluster without endpoints → the cluster that it stands for.
	aliases map[string]string
	version int
	changed chan struct{}
}

func newControl(t *testing.T) (*control, string) {
	t.Helper()
	c := &control{clusters: map[string][]string{}, changed: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return c, l.Addr().String()
}

// set gives a cluster its endpoints and tells whoever listens.
func (c *control) set(name string, addrs ...string) {
	c.withhold(name, addrs...)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// withhold gives a cluster its endpoints and tells nobody until it is asked.
func (c *control) withhold(name string, addrs ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clusters[name] = addrs
	c.version++
}

func (c *control) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	requests := make(chan *discoveryv3.DeltaDiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			q, err := s.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- q:
			case <-s.Context().Done():
				return
			}
		}
	}()
	subscribed := map[mesh.Type]map[string]bool{}
	changed := c.nextChange()
	for nonce := 0; ; nonce++ {
		var ask map[mesh.Type]map[string]bool
		select {
		case q, ok := <-requests:
			if !ok {
				return nil
			}
			typ := mesh.Type(q.GetTypeUrl())
			if subscribed[typ] == nil {
				subscribed[typ] = map[string]bool{}
			}
			fresh := map[string]bool{}
			for _, n := range q.GetResourceNamesSubscribe() {
				subscribed[typ][n], fresh[n] = true, true
			}
			for _, n := range q.GetResourceNamesUnsubscribe() {
				delete(subscribed[typ], n)
			}
			ask = map[mesh.Type]map[string]bool{typ: fresh}
		case <-changed:
			// Only now: a change during the answer to a request must not be missed.
			changed, ask = c.nextChange(), subscribed
		}
		for _, typ := range []mesh.Type{mesh.TypeCluster, mesh.TypeEndpoint} {
			if len(ask[typ]) == 0 {
				continue
			}
			if err := s.Send(c.response(typ, ask[typ], nonce)); err != nil {
				return err
			}
		}
	}
}

// nextChange is closed by the next set.
func (c *control) nextChange() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *control) response(typ mesh.Type, ask map[string]bool, nonce int) *discoveryv3.DeltaDiscoveryResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(typ), Nonce: strconv.Itoa(nonce) + typ.Short()}
	for name := range ask {
		addrs, ok := c.clusters[name]
		alias, isAlias := c.aliases[name]
		if !ok && !isAlias {
			r.RemovedResources = append(r.RemovedResources, name)
			continue
		}
		var m proto.Message = cluster(name)
		if isAlias {
			m = aliasCluster(name, alias)
		}
		if typ == mesh.TypeEndpoint {
			m = assignment(name, addrs)
		}
		body, err := anypb.New(m)
		if err != nil {
			panic(err)
		}
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Version: strconv.Itoa(c.version), Resource: body})
	}
	return r
}

func cluster(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: name, ConnectTimeout: durationpb.New(1e9),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
	}
}

func assignment(name string, addrs []string) *endpointv3.ClusterLoadAssignment {
	var list []*endpointv3.LbEndpoint
	for _, a := range addrs {
		host, port, _ := net.SplitHostPort(a)
		n, _ := strconv.ParseUint(port, 10, 16)
		list = append(list, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(n)},
			}}},
		}}})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
		Locality: &corev3.Locality{}, LbEndpoints: list,
	}}}
}

// alias makes a name stand for a cluster, as the address of a service does.
func (c *control) alias(name, of string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.aliases == nil {
		c.aliases = map[string]string{}
	}
	c.aliases[name] = of
}

func aliasCluster(name, of string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: name, ConnectTimeout: durationpb.New(1e9), ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: name},
		Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"freshmesh.dev": {Fields: map[string]*structpb.Value{
			"alias": structpb.NewStringValue(of),
		}}}},
	}
}
