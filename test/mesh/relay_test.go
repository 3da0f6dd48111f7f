package mesh

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// relay stands between a proxy and its control plane and can lose endpoint
// updates. HTTP/2 pings, and every other message, pass.
type relay struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	loadstatsv3.UnimplementedLoadReportingServiceServer
	address string
	conn    *grpc.ClientConn

	// drop is how many endpoint updates are still to be lost.
	drop atomic.Int32
	// muteRequests loses what the proxy subscribes to and unsubscribes from;
	// acknowledgements pass. muteReports loses load reports.
	muteRequests, muteReports atomic.Bool
	// streams counts ADS streams begun, clusters and endpoints the resources of these types that passed.
	streams, clusters, endpoints atomic.Int32
}

func startRelay(t *testing.T, upstream string) *relay {
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
	r := &relay{address: listener.Addr().String(), conn: conn}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, r)
	loadstatsv3.RegisterLoadReportingServiceServer(server, r)
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

func (r *relay) DeltaAggregatedResources(down discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := discoveryv3.NewAggregatedDiscoveryServiceClient(r.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	r.streams.Add(1)
	return relayBoth(cancel, func() error {
		return pump(down.Recv, func(m *discoveryv3.DeltaDiscoveryRequest) error {
			if r.muteRequests.Load() {
				m.ResourceNamesSubscribe, m.ResourceNamesUnsubscribe = nil, nil
				if m.GetResponseNonce() == "" {
					return nil
				}
			}
			return up.Send(m)
		})
	}, func() error {
		return pump(up.Recv, func(m *discoveryv3.DeltaDiscoveryResponse) error {
			if r.loses(m) {
				return nil
			}
			return down.Send(m)
		})
	})
}

// loses counts what a response carries, and tells whether it is to be lost.
func (r *relay) loses(m *discoveryv3.DeltaDiscoveryResponse) bool {
	n := int32(len(m.GetResources()))
	switch mesh.Type(m.GetTypeUrl()) {
	case mesh.TypeCluster:
		r.clusters.Add(n)
	case mesh.TypeEndpoint:
		if n > 0 && r.drop.Load() > 0 {
			r.drop.Add(-1)
			return true
		}
		r.endpoints.Add(n)
	default: // not counted
	}
	return false
}

func (r *relay) StreamLoadStats(down loadstatsv3.LoadReportingService_StreamLoadStatsServer) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := loadstatsv3.NewLoadReportingServiceClient(r.conn).StreamLoadStats(ctx)
	if err != nil {
		return err
	}
	return relayBoth(cancel, func() error {
		return pump(down.Recv, func(m *loadstatsv3.LoadStatsRequest) error {
			if r.muteReports.Load() && len(m.GetClusterStats()) > 0 {
				return nil
			}
			return up.Send(m)
		})
	}, func() error { return pump(up.Recv, down.Send) })
}

// relayBoth runs both directions; the end of one ends the other.
func relayBoth(cancel context.CancelFunc, directions ...func() error) error {
	var g errgroup.Group
	first := make(chan error, len(directions))
	for _, d := range directions[1:] {
		g.Go(func() error { err := d(); cancel(); first <- err; return err })
	}
	// The receiving side of the client ends only with the handler, so it is not waited for.
	go func() { first <- directions[0]() }()
	err := <-first
	cancel()
	return err
}

func pump[M any](receive func() (M, error), send func(M) error) error {
	for {
		m, err := receive()
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if err := send(m); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
}
