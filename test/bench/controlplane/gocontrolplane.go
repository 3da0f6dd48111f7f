package main

import (
	"context"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

// snapshotCache is go-control-plane's server on its SnapshotCache in ADS mode.
// All nodes hash to one key, so that a change is one snapshot and one
// SetSnapshot: the cheapest way to use it. A key for each node would add a
// SetSnapshot for each.
type snapshotCache struct {
	world   *world
	cache   cache.SnapshotCache
	server  server.Server
	version int
}

type oneKey struct{}

// ID implements cache.NodeHash.
func (oneKey) ID(*corev3.Node) string { return "all" }

func newSnapshotCache(ctx context.Context, w *world) (contender, error) {
	c := &snapshotCache{world: w, cache: cache.NewSnapshotCache(true, oneKey{}, nil)}
	c.server = server.NewServer(ctx, c.cache, nil)
	return c, c.apply(ctx, nil)
}

func (c *snapshotCache) options() []grpc.ServerOption { return nil }

func (c *snapshotCache) register(s *grpc.Server) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, c.server)
}

// apply makes a snapshot of the whole world, in which the change already is:
// the cache has no way to change a part.
func (c *snapshotCache) apply(ctx context.Context, _ *endpointv3.ClusterLoadAssignment) error {
	c.version++
	snapshot, err := cache.NewSnapshot(strconv.Itoa(c.version), map[string][]types.Resource{
		clusterType:  resources(c.world.clusters),
		endpointType: resources(c.world.assignments),
	})
	if err != nil {
		return err
	}
	return c.cache.SetSnapshot(ctx, "all", snapshot)
}

func resources[R types.Resource](in []R) []types.Resource {
	out := make([]types.Resource, len(in))
	for i, r := range in {
		out[i] = r
	}
	return out
}
