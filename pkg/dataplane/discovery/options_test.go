package discovery

import (
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglevv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	ringv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func checkOf(change func(*corev3.HealthCheck)) []*corev3.HealthCheck {
	h := &corev3.HealthCheck{
		Timeout: durationpb.New(time.Second), Interval: durationpb.New(5 * time.Second),
		HealthChecker: &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: &corev3.HealthCheck_HttpHealthCheck{Path: "/h"}},
	}
	change(h)
	return []*corev3.HealthCheck{h}
}

// TestDecodeOptions: what a cluster says of balancing, ejection, checks and limits; a wrong value refuses it by its field.
func TestDecodeOptions(t *testing.T) {
	http := DefaultHealthCheck
	http.Kind, http.Path, http.Timeout, http.Interval = CheckHTTP, "/h", time.Second, 5*time.Second
	http.UnhealthyInterval, http.UnhealthyEdgeInterval, http.HealthyEdgeInterval = http.Interval, http.Interval, http.Interval
	for name, tt := range map[string]struct {
		change func(*clusterv3.Cluster)
		want   func(*Cluster)
		err    string
	}{
		"panic threshold": {
			change: func(c *clusterv3.Cluster) {
				c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{Value: 40}}
			},
			want: func(c *Cluster) { c.Balancing.PanicThreshold = 40 },
		},
		"panic threshold above 100": {
			change: func(c *clusterv3.Cluster) {
				c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{Value: 140}}
			},
			err: "healthy_panic_threshold",
		},
		"localities by weight": {
			change: func(c *clusterv3.Cluster) {
				c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{
					LocalityConfigSpecifier: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
						LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
					},
				}
			},
			want: func(c *Cluster) { c.Balancing.LocalityWeighted = true },
		},
		"slow start": {
			change: func(c *clusterv3.Cluster) {
				c.LoadBalancingPolicy = policies(&leastv3.LeastRequest{SlowStartConfig: &commonv3.SlowStartConfig{
					SlowStartWindow: durationpb.New(time.Minute), Aggression: &corev3.RuntimeDouble{DefaultValue: 2}, MinWeightPercent: &typev3.Percent{Value: 5},
				}})
			},
			want: func(c *Cluster) {
				c.Policy, c.Balancing.SlowStart = LeastRequest, SlowStart{Window: time.Minute, Aggression: 2, MinWeightPercent: 5}
			},
		},
		"slow start without aggression": {
			change: func(c *clusterv3.Cluster) {
				c.LoadBalancingPolicy = policies(&leastv3.LeastRequest{SlowStartConfig: &commonv3.SlowStartConfig{Aggression: &corev3.RuntimeDouble{}}})
			},
			err: "aggression",
		},
		"ring": {
			change: func(c *clusterv3.Cluster) {
				c.LoadBalancingPolicy = policies(&ringv3.RingHash{MinimumRingSize: wrapperspb.UInt64(10), MaximumRingSize: wrapperspb.UInt64(20)})
			},
			want: func(c *Cluster) { c.Policy, c.Balancing.MinRing, c.Balancing.MaxRing = RingHash, 10, 20 },
		},
		"ring out of order": {
			change: func(c *clusterv3.Cluster) {
				c.LbPolicy = clusterv3.Cluster_RING_HASH
				c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{MaximumRingSize: wrapperspb.UInt64(10)}}
			},
			err: "ring size",
		},
		"Maglev table": {
			change: func(c *clusterv3.Cluster) {
				c.LoadBalancingPolicy = policies(&maglevv3.Maglev{TableSize: wrapperspb.UInt64(251)})
			},
			want: func(c *Cluster) { c.Policy, c.Balancing.MaglevTable = Maglev, 251 },
		},
		"Maglev table that is no prime": {
			change: func(c *clusterv3.Cluster) {
				c.LoadBalancingPolicy = policies(&maglevv3.Maglev{TableSize: wrapperspb.UInt64(65536)})
			},
			err: "prime",
		},
		"outlier detection with defaults": {
			change: func(c *clusterv3.Cluster) { c.OutlierDetection = &clusterv3.OutlierDetection{} },
			want:   func(c *Cluster) { c.Outlier = new(DefaultOutlier) },
		},
		"outlier detection": {
			change: func(c *clusterv3.Cluster) {
				c.OutlierDetection = &clusterv3.OutlierDetection{
					Consecutive_5Xx: wrapperspb.UInt32(2), SplitExternalLocalOriginErrors: true,
					BaseEjectionTime: durationpb.New(10 * time.Minute), EnforcingSuccessRate: wrapperspb.UInt32(0),
				}
			},
			want: func(c *Cluster) {
				o := DefaultOutlier
				o.Consecutive5xx, o.Split, o.EnforceSuccessRate = 2, true, 0
				// The longest is never shorter than the first.
				o.BaseTime, o.MaxTime, o.Jitter = 10*time.Minute, 10*time.Minute, time.Minute
				c.Outlier = &o
			},
		},
		"outlier percentage above 100": {
			change: func(c *clusterv3.Cluster) {
				c.OutlierDetection = &clusterv3.OutlierDetection{MaxEjectionPercent: wrapperspb.UInt32(101)}
			},
			err: "max_ejection_percent",
		},
		"outlier interval of 0": {
			change: func(c *clusterv3.Cluster) {
				c.OutlierDetection = &clusterv3.OutlierDetection{Interval: durationpb.New(0)}
			},
			err: "interval",
		},
		"retries that were given": {
			change: func(c *clusterv3.Cluster) {
				c.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxRetries: wrapperspb.UInt32(7)}}}
			},
			want: func(c *Cluster) { c.Breakers[0].Retries, c.Breakers[0].RetryPercent = 7, 0 },
		},
		"retry budget": {
			change: func(c *clusterv3.Cluster) {
				c.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
					RetryBudget: &clusterv3.CircuitBreakers_Thresholds_RetryBudget{BudgetPercent: &typev3.Percent{Value: 50}},
				}}}
			},
			want: func(c *Cluster) { c.Breakers[0].RetryPercent = 50 },
		},
		"HTTP check": {
			change: func(c *clusterv3.Cluster) { c.HealthChecks = checkOf(func(*corev3.HealthCheck) {}) },
			want:   func(c *Cluster) { c.HealthChecks = []HealthCheck{http} },
		},
		"TCP check": {
			change: func(c *clusterv3.Cluster) {
				c.HealthChecks = checkOf(func(h *corev3.HealthCheck) {
					h.HealthChecker = &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{
						Send: &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Text{Text: "50494e47"}},
					}}
				})
			},
			want: func(c *Cluster) {
				h := http
				h.Kind, h.Path, h.Send = CheckTCP, "", []byte("PING")
				c.HealthChecks = []HealthCheck{h}
			},
		},
		"check without interval": {
			change: func(c *clusterv3.Cluster) {
				c.HealthChecks = checkOf(func(h *corev3.HealthCheck) { h.Interval = durationpb.New(0) })
			},
			err: "health_checks[0]",
		},
		"check of no kind": {
			change: func(c *clusterv3.Cluster) {
				c.HealthChecks = checkOf(func(h *corev3.HealthCheck) { h.HealthChecker = nil })
			},
			err: "only http, tcp and grpc",
		},
		"check with a text that is no hexadecimal": {
			change: func(c *clusterv3.Cluster) {
				c.HealthChecks = checkOf(func(h *corev3.HealthCheck) {
					h.HealthChecker = &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{
						Send: &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Text{Text: "PING"}},
					}}
				})
			},
			err: "tcp_health_check.send",
		},
		"ours": {
			change: func(c *clusterv3.Cluster) {
				c.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"freshmesh.dev": {Fields: map[string]*structpb.Value{
					"close_on_ejection": structpb.NewBoolValue(true), "close_on_overload": structpb.NewStringValue("true"),
				}}}}
			},
			want: func(c *Cluster) { c.CloseOnEjection = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}
			tt.change(c)
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
			want := Cluster{
				Name: "c", ServiceName: "c", ConnectTimeout: 5 * time.Second, Policy: RoundRobin, Balancing: DefaultBalancing,
				Breakers: &[Priorities]Limits{DefaultLimits, DefaultLimits},
			}
			tt.want(&want)
			if diff := cmp.Diff(want, got.cluster.base); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDecodeLocality(t *testing.T) {
	a := &endpointv3.ClusterLoadAssignment{
		ClusterName: "c",
		Policy:      &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(200)},
		Endpoints: []*endpointv3.LocalityLbEndpoints{{
			Locality: &corev3.Locality{Region: "r", Zone: "z", SubZone: "s"}, LoadBalancingWeight: wrapperspb.UInt32(7),
			LbEndpoints: []*endpointv3.LbEndpoint{lbEndpoint("10.0.0.1", 80)},
		}},
	}
	got, err := decode(mesh.TypeEndpoint, "c", anyOf(a))
	if err != nil {
		t.Fatal(err)
	}
	if e := got.endpoints[0]; e.SubZone != "s" || e.LocalityWeight != 7 || got.overprovisioning != 200 {
		t.Errorf("%+v, factor %d", e, got.overprovisioning)
	}
	a.Policy.OverprovisioningFactor = wrapperspb.UInt32(0)
	if _, err := decode(mesh.TypeEndpoint, "c", anyOf(a)); err == nil {
		t.Error("a factor of 0 passes")
	}
}
