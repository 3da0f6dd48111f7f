//go:build linux

package main

import (
	"context"
	"maps"
	"slices"
)

// workload is a kind of traffic.
type workload struct {
	// endpoints starts s.Endpoints servers, and gives their addresses and what stops them.
	endpoints func(s setup) (addresses []string, stop func(), err error)
	// load keeps s.Connections busy until ctx ends, and gives what was done in that time.
	load func(ctx context.Context, s setup, address string) (outcome, error)
	// http2: both sides speak HTTP/2 by prior knowledge.
	http2 bool
}

// outcome is what the load of one round saw.
type outcome struct {
	requests int
	latency  histogram
}

var workloads = map[string]workload{
	"http1": {endpoints: http1Endpoints, load: http1Load},
	"grpc":  {endpoints: http2Endpoints(grpcUnary), load: http2Load(grpcUnary), http2: true},
	"http2": {endpoints: http2Endpoints(http2Get), load: http2Load(http2Get), http2: true},
}

func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
