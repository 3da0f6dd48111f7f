package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
)

// contender is a control plane under measurement.
type contender interface {
	// options are the gRPC server options that it needs, or that it ships with.
	options() []grpc.ServerOption
	// register adds its services to the server. It is called once, before apply.
	register(*grpc.Server)
	// apply publishes one changed assignment. It may return before the nodes
	// have it.
	apply(context.Context, *endpointv3.ClusterLoadAssignment) error
}

// contenders maps a name to its maker. The maker publishes the whole world
// before it returns; ctx ends with the process.
var contenders = map[string]func(ctx context.Context, w *world) (contender, error){
	"bare":             newBare,
	"freshmesh":        newMeshServer,
	"go-control-plane": newSnapshotCache,
}

var defaultContenders = contenderNames()

func contenderNames() []string { return slices.Sorted(maps.Keys(contenders)) }

func newContender(ctx context.Context, name string, w *world) (contender, error) {
	found, ok := contenders[name]
	if !ok {
		return nil, fmt.Errorf("contender %q: not one of %v", name, contenderNames())
	}
	return found(ctx, w)
}
