package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

// connecting bounds how many nodes fetch their first state at once, so that a
// server's memory shows what it keeps and not the rush at the start.
const connecting = 16

// fleet is the nodes of one contender. Nodes run until its context ends.
type fleet struct {
	wg     sync.WaitGroup
	slots  chan struct{}
	failed chan error
	// last is the newest assignment response of node 0, for a check of its content.
	last atomic.Pointer[[]byte]

	// received counts the assignments that nodes got and acknowledged;
	// reached is signalled at the target.
	received, target atomic.Int64
	reached          chan struct{}
}

// connect starts n nodes, and returns once each has acknowledged the whole
// world.
func connect(ctx context.Context, s setup, address string) (*fleet, error) {
	f := &fleet{slots: make(chan struct{}, connecting), failed: make(chan error, s.Nodes), reached: make(chan struct{}, 1)}
	f.expect(s.Nodes * s.Services)
	subscribe, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: endpointType, ResourceNamesSubscribe: newWorld(s).names,
	})
	if err != nil {
		return nil, err
	}
	for i := range s.Nodes {
		f.wg.Go(func() {
			if err := f.node(ctx, i, s.Services, address, subscribe); ctx.Err() == nil {
				f.failed <- fmt.Errorf("node %d: %w", i, err)
			}
		})
	}
	return f, f.wait(ctx, s.timeout)
}

// expect raises the number of assignments to wait for. It comes before
// whatever makes them arrive.
func (f *fleet) expect(n int) { f.target.Add(int64(n)) }

// wait blocks until the expected assignments are acknowledged. More of them
// than expected are an error: a contender then sends what has not changed.
func (f *fleet) wait(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case <-f.reached:
	case err := <-f.failed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("nodes acknowledged %d of %d assignments: %w", f.received.Load(), f.target.Load(), ctx.Err())
	}
	return f.exact()
}

func (f *fleet) exact() error {
	if got, want := f.received.Load(), f.target.Load(); got != want {
		return fmt.Errorf("nodes got %d assignments, want %d", got, want)
	}
	return nil
}

// node is one node: a connection and a stream.
func (f *fleet) node(ctx context.Context, i, services int, address string, subscribe []byte) error {
	f.slots <- struct{}{}
	release := sync.OnceFunc(func() { <-f.slots })
	defer release()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the node is over
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName)
	if err != nil {
		return err
	}
	hello := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: fmt.Sprintf("node-%04d", i), UserAgentName: "bench"}, TypeUrl: clusterType}
	if err := send(stream, hello); err != nil {
		return err
	}
	subscribed, held := false, 0
	for {
		r := reply{keep: i == 0}
		if err := stream.RecvMsg(&r); err != nil {
			return err
		}
		if err := send(stream, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.typeURL, ResponseNonce: r.nonce}); err != nil {
			return err
		}
		switch {
		case r.typeURL == endpointType && r.resources > 0:
			if i == 0 {
				f.last.Store(&r.bytes)
			}
			if held += r.resources; held >= services {
				release()
			}
			if f.received.Add(int64(r.resources)) == f.target.Load() {
				f.reached <- struct{}{}
			}
		case !subscribed:
			subscribed = true
			if err := stream.SendMsg(subscribe); err != nil {
				return err
			}
		}
	}
}

func send(stream grpc.ClientStream, r *discoveryv3.DeltaDiscoveryRequest) error {
	bytes, err := proto.Marshal(r)
	if err != nil {
		return err
	}
	return stream.SendMsg(bytes)
}

// check tells whether node 0 got the assignment of the given step last.
func (f *fleet) check(step int) error {
	var r discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(*f.last.Load(), &r); err != nil {
		return err
	}
	return checkChange(&r, step)
}
