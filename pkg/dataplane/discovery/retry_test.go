package discovery

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestLifetimesAndRetries(t *testing.T) {
	never, minute := time.Duration(0), time.Minute
	for name, tt := range map[string]struct {
		fields map[string]any
		drain  *time.Duration
		time   time.Duration
		retry  *Retry
	}{
		"nothing": {fields: map[string]any{}},
		"drain":   {fields: map[string]any{"drain": "1m"}, drain: &minute},
		"never":   {fields: map[string]any{"drain": "0s"}, drain: &never},
		"wrong":   {fields: map[string]any{"drain": "-1s", "timeout": 5, "retry": "x"}},
		"timeout": {fields: map[string]any{"timeout": "15s"}, time: 15 * time.Second},
		"off":     {fields: map[string]any{"retry": map[string]any{"on": ""}}, retry: &Retry{Attempts: 1}},
		"retry": {
			fields: map[string]any{"retry": map[string]any{"on": "5xx, unavailable", "attempts": 99, "per_try_timeout": "1s"}},
			retry:  &Retry{On: []string{"5xx", "unavailable"}, Attempts: 10, PerTryTimeout: time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := structpb.NewStruct(tt.fields)
			if err != nil {
				t.Fatal(err)
			}
			c := &clusterv3.Cluster{
				Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
				Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{metadataName: s}},
			}
			got, err := decode(mesh.TypeCluster, "c", anyOf(c))
			if err != nil {
				t.Fatal(err)
			}
			b := got.cluster.base
			if diff := cmp.Diff([]any{tt.drain, tt.time, tt.retry}, []any{b.Drain, b.Timeout, b.Retry}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
