package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// bare is the floor: a gRPC server that sends the same ready-made bytes to
// every stream, and reads the acknowledgements without looking at them. It
// answers the first request of each type, and knows nothing of subscriptions.
type bare struct {
	clusters    []byte
	assignments []byte

	mu      sync.Mutex // guards streams and changes
	streams map[grpc.ServerStream]struct{}
	changes int
}

func newBare(_ context.Context, w *world) (contender, error) {
	b := &bare{streams: map[grpc.ServerStream]struct{}{}}
	var err error
	if b.clusters, err = response(clusterType, "0", w.names, w.clusters); err != nil {
		return nil, err
	}
	b.assignments, err = response(endpointType, "0", w.names, w.assignments)
	return b, err
}

// response marshals a delta response with the given resources.
func response[M proto.Message](typeURL, version string, names []string, messages []M) ([]byte, error) {
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: version}
	for i, m := range messages {
		body, err := anypb.New(m)
		if err != nil {
			return nil, fmt.Errorf("marshal %s: %w", names[i], err)
		}
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: names[i], Version: version, Resource: body})
	}
	return proto.Marshal(r)
}

func (b *bare) options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ForceServerCodecV2(rawCodec{})}
}

func (b *bare) register(s *grpc.Server) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService",
		Streams: []grpc.StreamDesc{{
			StreamName: "DeltaAggregatedResources", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return b.stream(stream) },
		}},
	}, nil)
}

func (b *bare) stream(stream grpc.ServerStream) error {
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.streams, stream)
	}()
	for {
		var r request
		if err := stream.RecvMsg(&r); err != nil {
			return err
		}
		if r.ack {
			continue
		}
		if r.typeURL == clusterType {
			if err := stream.SendMsg(b.clusters); err != nil {
				return err
			}
			continue
		}
		// From here on only apply sends on this stream.
		if err := stream.SendMsg(b.assignments); err != nil {
			return err
		}
		b.mu.Lock()
		b.streams[stream] = struct{}{}
		b.mu.Unlock()
	}
}

func (b *bare) apply(_ context.Context, changed *endpointv3.ClusterLoadAssignment) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes++
	bytes, err := response(endpointType, strconv.Itoa(b.changes), []string{changed.GetClusterName()}, []*endpointv3.ClusterLoadAssignment{changed})
	if err != nil {
		return err
	}
	for s := range b.streams {
		if err := s.SendMsg(bytes); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}
