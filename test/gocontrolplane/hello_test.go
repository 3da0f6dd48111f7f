package gocontrolplane

import (
	"strings"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// A first request that subscribes to nothing is a wildcard here, although it takes the
// wildcard back. So our data plane, which says who it is before it wants anything,
// subscribes to a name for a moment: then nothing is sent but what it asks for later.
func TestFirstRequestWithoutASubscriptionIsAWildcard(t *testing.T) {
	for name, test := range map[string]struct {
		hello []xdstest.Request
		wild  bool
	}{
		"takes back the wildcard": {[]xdstest.Request{{Type: mesh.TypeCluster, Unsubscribe: []string{"*"}}}, true},
		"a name for a moment": {[]xdstest.Request{
			{Type: mesh.TypeCluster, Subscribe: []string{"hello"}}, {Type: mesh.TypeCluster, Unsubscribe: []string{"hello"}},
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
				set(t, c, "1", xdstest.Resource(mesh.TypeCluster, "a", "v1"), xdstest.Resource(mesh.TypeCluster, "b", "v1"))
				ads := server.NewServer(t.Context(), c, nil)
				conn := xdstest.Serve(t, func(r grpc.ServiceRegistrar) { discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, ads) })
				s := xdstest.Open(t, conn, xdstest.Delta, &corev3.Node{Id: nodeID})
				for _, request := range test.hello {
					s.Send(request)
				}
				wild := false
				for _, r := range s.Arrived() {
					wild = wild || strings.Contains(r.String(), "+b@v1")
					s.Ack(r)
				}
				if wild != test.wild {
					t.Errorf("sent everything: %v, want %v", wild, test.wild)
				}
				if test.wild {
					return
				}
				s.Subscribe(mesh.TypeCluster, "a")
				s.ExpectAcked("cds +a@v1")
				s.Silent()
			})
		})
	}
}
