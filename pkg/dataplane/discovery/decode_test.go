package discovery

import (
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	leastv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	roundv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func policies(configs ...proto.Message) *clusterv3.LoadBalancingPolicy {
	l := &clusterv3.LoadBalancingPolicy{}
	for _, c := range configs {
		l.Policies = append(l.Policies, &clusterv3.LoadBalancingPolicy_Policy{
			TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "x", TypedConfig: anyOf(c)},
		})
	}
	return l
}

func TestDecodeCluster(t *testing.T) {
	defaults := Cluster{
		Name: "c", ServiceName: "c", ConnectTimeout: 5 * time.Second, Policy: RoundRobin, Balancing: DefaultBalancing,
		Breakers: &[Priorities]Limits{DefaultLimits, DefaultLimits},
	}
	for name, tt := range map[string]struct {
		change func(*clusterv3.Cluster)
		want   func(*Cluster)
		err    string
	}{
		"defaults": {},
		"service name": {
			change: func(c *clusterv3.Cluster) {
				c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: "s"}
			},
			want: func(c *Cluster) { c.ServiceName = "s" },
		},
		"service name that is a wildcard": {
			change: func(c *clusterv3.Cluster) {
				c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: "*"}
			},
			err: "everything",
		},
		"connect timeout": {
			change: func(c *clusterv3.Cluster) { c.ConnectTimeout = durationpb.New(time.Second) },
			want:   func(c *Cluster) { c.ConnectTimeout = time.Second },
		},
		"connect timeout of 0": {
			change: func(c *clusterv3.Cluster) { c.ConnectTimeout = durationpb.New(0) },
			err:    "connect_timeout",
		},
		"http2": {
			change: func(c *clusterv3.Cluster) {
				c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptionsName: anyOf(&httpv3.HttpProtocolOptions{
					UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
						ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
							ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
								Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
							},
						},
					},
				})}
			},
			want: func(c *Cluster) { c.HTTP2 = true },
		},
		"first known policy of the list": {
			change: func(c *clusterv3.Cluster) {
				c.LoadBalancingPolicy = policies(&corev3.Node{}, &leastv3.LeastRequest{}, &roundv3.RoundRobin{})
			},
			want: func(c *Cluster) { c.Policy = LeastRequest },
		},
		"policy inside wrr_locality": {
			change: func(c *clusterv3.Cluster) {
				c.LoadBalancingPolicy = policies(&wrrlocalityv3.WrrLocality{EndpointPickingPolicy: policies(&roundv3.RoundRobin{})})
			},
			want: func(c *Cluster) { c.Policy, c.Balancing.LocalityWeighted = RoundRobin, true },
		},
		"list with nothing known": {
			change: func(c *clusterv3.Cluster) { c.LoadBalancingPolicy = policies(&corev3.Node{}) },
			want:   func(c *Cluster) { c.Policy = LeastRequest },
		},
		"lb_policy": {
			change: func(c *clusterv3.Cluster) { c.LbPolicy = clusterv3.Cluster_MAGLEV },
			want:   func(c *Cluster) { c.Policy = Maglev },
		},
		"breakers by priority": {
			change: func(c *clusterv3.Cluster) {
				c.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{
					{Priority: corev3.RoutingPriority_HIGH, MaxRequests: wrapperspb.UInt32(9)},
					{MaxRequests: wrapperspb.UInt32(0), MaxConnections: wrapperspb.UInt32(7)},
				}}
			},
			want: func(c *Cluster) {
				c.Breakers = &[Priorities]Limits{DefaultLimits, DefaultLimits}
				c.Breakers[DefaultPriority].Requests, c.Breakers[DefaultPriority].Connections = 0, 7
				c.Breakers[HighPriority].Requests = 9
			},
		},
		"TLS": {
			change: func(c *clusterv3.Cluster) { c.TransportSocket = &corev3.TransportSocket{Name: "tls"} },
			err:    "transport_socket",
		},
		"original destination": {
			change: func(c *clusterv3.Cluster) {
				c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
			},
			err: "ORIGINAL_DST",
		},
		"another name inside": {
			change: func(c *clusterv3.Cluster) { c.Name = "d" },
			err:    `"d"`,
		},
		"STATIC with a host name": {
			change: func(c *clusterv3.Cluster) {
				c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
				c.LoadAssignment = assignment("c", "example.com")
			},
			err: "not an IP address",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}
			if tt.change != nil {
				tt.change(c)
			}
			got, err := decode(mesh.TypeCluster, "c", anyOf(c))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := defaults
			if tt.want != nil {
				tt.want(&want)
			}
			if diff := cmp.Diff(want, got.cluster.base); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if got.cluster.eds != want.ServiceName {
				t.Errorf("assignment %q, want %q", got.cluster.eds, want.ServiceName)
			}
		})
	}
}

func TestDecodeAssignment(t *testing.T) {
	full := lbEndpoint("10.0.0.1", 8080)
	full.HealthStatus = corev3.HealthStatus_DRAINING
	full.LoadBalancingWeight = wrapperspb.UInt32(5)
	full.GetEndpoint().Hostname = "h"
	zero := lbEndpoint("::ffff:10.0.0.2", 80)
	zero.LoadBalancingWeight = wrapperspb.UInt32(0)
	zero.HealthStatus = corev3.HealthStatus_TIMEOUT
	a := &endpointv3.ClusterLoadAssignment{ClusterName: "c", Endpoints: []*endpointv3.LocalityLbEndpoints{
		{Locality: &corev3.Locality{Region: "r", Zone: "z1"}, LbEndpoints: []*endpointv3.LbEndpoint{full, zero}},
		{Priority: 1, LbEndpoints: []*endpointv3.LbEndpoint{lbEndpoint("fd00::1", 80), lbEndpoint("10.0.0.2", 80)}},
	}}
	got, err := decode(mesh.TypeEndpoint, "c", anyOf(a))
	if err != nil {
		t.Fatal(err)
	}
	k := key("10.0.0.1")
	k.Address = addrPort("10.0.0.1:8080")
	want := []mesh.Endpoint{
		{EndpointKey: k, Health: mesh.Draining, Weight: 5, Region: "r", Zone: "z1", Hostname: "h"},
		{EndpointKey: key("10.0.0.2"), Health: mesh.Unhealthy, Weight: 1, Region: "r", Zone: "z1"},
		{EndpointKey: key("fd00::1"), Weight: 1, Priority: 1},
	}
	if diff := cmp.Diff(want, got.endpoints, cmp.Comparer(func(a, b mesh.EndpointKey) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for name, bad := range map[string]*endpointv3.LbEndpoint{
		"host name": lbEndpoint("example.com", 80),
		"no port":   lbEndpoint("10.0.0.1", 0),
		"big port":  lbEndpoint("10.0.0.1", 65536),
		"zone":      lbEndpoint("fe80::1%eth0", 80),
		"nothing":   {},
	} {
		t.Run(name, func(t *testing.T) {
			a := assignment("c", "10.0.0.9")
			a.Endpoints[0].LbEndpoints = append(a.Endpoints[0].LbEndpoints, bad)
			if _, err := decode(mesh.TypeEndpoint, "c", anyOf(a)); err == nil || !strings.Contains(err.Error(), "lb_endpoints[1]") {
				t.Errorf("error %v, want one that names lb_endpoints[1]", err)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range []*anypb.Any{cds("c", "1", "s").GetResource(), dns("c", "1", "h").GetResource(), eds("c", "1", "10.0.0.1").GetResource()} {
		f.Add(r.GetTypeUrl() == string(mesh.TypeCluster), "c", r.GetValue())
	}
	f.Fuzz(func(t *testing.T, cluster bool, name string, body []byte) {
		typ := mesh.TypeEndpoint
		if cluster {
			typ = mesh.TypeCluster
		}
		d, err := decode(typ, name, &anypb.Any{TypeUrl: string(typ), Value: body})
		if err != nil {
			if strings.Contains(err.Error(), "decoder failed") {
				t.Fatalf("a panic was caught: %v", err)
			}
			return
		}
		if cluster && (d.cluster == nil || d.cluster.base.Name != name || d.cluster.base.ConnectTimeout <= 0) {
			t.Fatalf("cluster %+v", d.cluster)
		}
		for _, e := range d.endpoints {
			if !e.Address.IsValid() || e.Address.Port() == 0 || e.Weight == 0 {
				t.Fatalf("endpoint %+v", e)
			}
		}
	})
}
