package interop

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// adsRelay stands between clients and their control plane. It passes ADS on, message by message.
type adsRelay struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	conn    *grpc.ClientConn
	address string
	// begin gives what is done to the messages of a new stream.
	begin func() hooks
}

// hooks are called by one goroutine each. They may be nil.
type hooks struct {
	// request sees a *DiscoveryRequest or a *DeltaDiscoveryRequest before it is passed on.
	request func(m any)
	// keep tells whether a delta response is kept back, and acknowledged in the client's name.
	keep func(m *discoveryv3.DeltaDiscoveryResponse) bool
	// ended is called at the end of the stream.
	ended func()
}

func startADSRelay(t *testing.T, upstream string, begin func() hooks) *adsRelay {
	t.Helper()
	soon := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1, MaxDelay: 50 * time.Millisecond}
	conn, err := grpc.NewClient(upstream, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &adsRelay{conn: conn, address: listener.Addr().String(), begin: begin}
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("relay: %v", err)
		}
		conn.Close()
	})
	return r
}

// StreamAggregatedResources implements the service.
func (r *adsRelay) StreamAggregatedResources(down discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := discoveryv3.NewAggregatedDiscoveryServiceClient(r.conn).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	return pass(cancel, down, up, r.begin(), nil)
}

// DeltaAggregatedResources implements the service.
func (r *adsRelay) DeltaAggregatedResources(down discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := discoveryv3.NewAggregatedDiscoveryServiceClient(r.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	h := r.begin()
	return pass(cancel, down, up, h, func(m *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryRequest {
		if h.keep == nil || !h.keep(m) {
			return nil
		}
		return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()}
	})
}

// pass passes both directions on until one ends. instead, if not nil, gives the
// answer to a response that is kept back.
func pass[Q, R any](
	cancel context.CancelFunc,
	down interface {
		Recv() (*Q, error)
		Send(m *R) error
	},
	up interface {
		Recv() (*R, error)
		Send(m *Q) error
	},
	h hooks, instead func(*R) *Q,
) error {
	var mu sync.Mutex // guards sending to up
	send := func(m *Q) error {
		mu.Lock()
		defer mu.Unlock()
		return up.Send(m)
	}
	go func() { // ends with the handler, which ends the stream that it reads
		defer cancel()
		for m, err := down.Recv(); err == nil; m, err = down.Recv() {
			if h.request != nil {
				h.request(m)
			}
			if send(m) != nil {
				return
			}
		}
	}()
	if h.ended != nil {
		defer h.ended()
	}
	for {
		m, err := up.Recv()
		if err != nil {
			return err
		}
		if instead != nil {
			if answer := instead(m); answer != nil {
				if err := send(answer); err != nil {
					return err
				}
				continue
			}
		}
		if err := down.Send(m); err != nil {
			return err
		}
	}
}
