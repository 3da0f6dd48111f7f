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
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// The first outage of the design: an update never reaches the proxy although the
// connection is healthy, and the old endpoint dies. The connect failure must
// bring the new endpoint within 5 s. The ack timeout is long, so that nothing
// else heals it.
func TestWithheldUpdateIsHealedByTheConnectFailure(t *testing.T) {
	if healed := withhold(t, false); !healed {
		t.Fatal("the new endpoint was not used within 5 s")
	}
}

// The same without the way back: it must fail, or the test above proves nothing.
func TestWithheldUpdateStaysWithoutTheWayBack(t *testing.T) {
	if healed := withhold(t, true); healed {
		t.Fatal("healed although the refresh path is off: the test does not bite")
	}
}

func withhold(t *testing.T, disableRefresh bool) (healed bool) {
	old, fresh := meshtest.StartBackend(t, "old"), meshtest.StartBackend(t, "new")
	manifests := meshtest.NewManifests(t)
	manifests.Service("echo", old.Address)
	control := meshtest.StartControl(t, manifests.Source(), ack.Policy{ProbeInterval: time.Minute, AckTimeout: time.Minute})
	relay := startRelay(t, control.XDS)
	proxy := meshtest.StartProxy(t, relay.address, func(c *dataplane.Config) {
		c.DisableRefresh = disableRefresh
		c.SilenceTimeout = 62 * time.Second // the data plane's own watchdog must not heal it either
	})
	client := &meshtest.Client{Address: proxy.Outbound}
	defer client.Close()
	meshtest.Until(t, 5*time.Second, "answered", func() bool {
		_, body, err := client.Get(authority)
		return err == nil && body == "old"
	})

	relay.drop.Store(1)
	manifests.Service("echo", fresh.Address)
	meshtest.Until(t, 5*time.Second, "withheld by the relay", func() bool { return relay.drop.Load() == 0 })
	old.Kill()

	until := time.Now().Add(5 * time.Second)
	for time.Now().Before(until) {
		if _, body, err := client.Get(authority); err == nil && body == "new" {
			return true
		}
		client.Close()
	}
	return false
}

// relay stands between a proxy and its control plane and can lose endpoint
// updates. HTTP/2 pings, and every other message, pass.
type relay struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	loadstatsv3.UnimplementedLoadReportingServiceServer
	address string
	conn    *grpc.ClientConn
	// drop is how many endpoint updates are still to be lost.
	drop atomic.Int32
}

func startRelay(t *testing.T, upstream string) *relay {
	t.Helper()
	conn, err := grpc.NewClient(upstream, grpc.WithTransportCredentials(insecure.NewCredentials()))
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
	return relayBoth(cancel, func() error { return pump(down.Recv, up.Send) }, func() error {
		return pump(up.Recv, func(m *discoveryv3.DeltaDiscoveryResponse) error {
			if mesh.Type(m.GetTypeUrl()) == mesh.TypeEndpoint && len(m.GetResources()) > 0 && r.drop.Load() > 0 {
				r.drop.Add(-1)
				return nil
			}
			return down.Send(m)
		})
	})
}

func (r *relay) StreamLoadStats(down loadstatsv3.LoadReportingService_StreamLoadStatsServer) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := loadstatsv3.NewLoadReportingServiceClient(r.conn).StreamLoadStats(ctx)
	if err != nil {
		return err
	}
	return relayBoth(cancel, func() error { return pump(down.Recv, up.Send) }, func() error { return pump(up.Recv, down.Send) })
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
