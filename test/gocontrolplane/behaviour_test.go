package gocontrolplane

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nodeID is the only node's.
const nodeID = "n"

// inBothLoops runs the test in a bubble, once with the server's plain loop and
// once with its ordered ADS loop: it has two implementations.
func inBothLoops(t *testing.T, test func(t *testing.T, loop []config.XDSOption)) {
	for name, loop := range map[string][]config.XDSOption{"plain": nil, "ordered": {sotw.WithOrderedADS()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, loop) })
		})
	}
}

// open starts a server on the cache, and opens a SotW stream to it.
func open(t *testing.T, c cache.Cache, callbacks server.Callbacks, loop []config.XDSOption) *xdstest.Stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ads := server.NewServer(ctx, c, callbacks, loop...)
	conn := xdstest.Serve(t, func(r grpc.ServiceRegistrar) { discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, ads) })
	return xdstest.Open(t, conn, xdstest.SotW, &corev3.Node{Id: nodeID})
}

// set gives the node a snapshot that holds the resources.
func set(t *testing.T, c cache.SnapshotCache, version string, resources ...mesh.Resource) {
	t.Helper()
	byType := map[string][]types.Resource{}
	for _, r := range resources {
		m, err := anypb.UnmarshalNew(&anypb.Any{TypeUrl: string(r.Type), Value: r.Body}, proto.UnmarshalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		byType[string(r.Type)] = append(byType[string(r.Type)], m)
	}
	s, err := cache.NewSnapshot(version, byType)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetSnapshot(t.Context(), nodeID, s); err != nil {
		t.Fatal(err)
	}
}

func assignment(name, label string) mesh.Resource {
	return xdstest.Resource(mesh.TypeEndpoint, name, label)
}

// A node that wants fewer assignments than there are gets none, in ADS mode.
// Its watch is not kept either: no later snapshot reaches it, not even one
// whose assignments are all named. A gRPC client names what it uses, so it
// hits this whenever the mesh has a second service.
func TestADSModeWithholdsASubset(t *testing.T) {
	inBothLoops(t, func(t *testing.T, loop []config.XDSOption) {
		c := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
		set(t, c, "1", assignment("a", "v1"), assignment("b", "v1"))
		s := open(t, c, nil, loop)
		s.Subscribe(mesh.TypeEndpoint, "a")
		s.Silent() // withheld
		set(t, c, "2", assignment("a", "v2"))
		s.Silent() // dropped: "a" is all there is, and all that was asked for
		s.Subscribe(mesh.TypeEndpoint, "a")
		s.ExpectText("eds +a@v2") // only the client can revive it
	})
}

// A node that has everything loses its watch by the arrival of a service it
// does not use.
func TestADSModeDropsAnOpenWatch(t *testing.T) {
	inBothLoops(t, func(t *testing.T, loop []config.XDSOption) {
		c := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
		set(t, c, "1", assignment("a", "v1"))
		s := open(t, c, nil, loop)
		s.Subscribe(mesh.TypeEndpoint, "a")
		s.ExpectAcked("eds +a@v1")
		s.Silent() // the watch is open
		set(t, c, "2", assignment("a", "v2"), assignment("b", "v1"))
		s.Silent()
		set(t, c, "3", assignment("a", "v3"))
		s.Silent()
	})
}

// The control of the two tests above: without ADS mode the same steps are answered.
func TestWithoutADSModeASubsetIsAnswered(t *testing.T) {
	inBothLoops(t, func(t *testing.T, loop []config.XDSOption) {
		c := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
		set(t, c, "1", assignment("a", "v1"), assignment("b", "v1"))
		s := open(t, c, nil, loop)
		s.Subscribe(mesh.TypeEndpoint, "a")
		s.ExpectAcked("eds +a@v1")
		s.Silent()
		set(t, c, "2", assignment("a", "v2"), assignment("b", "v1"))
		s.ExpectText("eds +a@v2")
	})
}

// A refusal is answered with the same resources, at once and every time: client
// and server go round as fast as the network lets them.
func TestNACKIsAnsweredWithTheSameAtOnce(t *testing.T) {
	const rounds = 100
	inBothLoops(t, func(t *testing.T, loop []config.XDSOption) {
		c := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
		set(t, c, "1", xdstest.Resource(mesh.TypeCluster, "a", "bad"))
		s := open(t, c, nil, loop)
		s.Subscribe(mesh.TypeCluster)
		refused := s.ExpectText("cds +a@bad")
		began := time.Now()
		for range rounds {
			s.Nack(refused, "a is bad")
			again := s.ExpectText("cds +a@bad")
			if again.Version != refused.Version || again.Nonce == refused.Nonce {
				t.Fatalf("version %s with nonce %s, then version %s with nonce %s: want the same version again", refused.Version, refused.Nonce, again.Version, again.Nonce)
			}
			refused = again
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("%d refusals took %v of bubble time, want none: there is a back-off now", rounds, waited)
		}
		s.Silent()
	})
}

// The request callback sees requests that the server then ignores because
// their nonce is old. So a callback cannot count acknowledgements: these two
// look like a NACK and an ACK, and are neither.
func TestCallbackRunsBeforeTheNonceCheck(t *testing.T) {
	inBothLoops(t, func(t *testing.T, loop []config.XDSOption) {
		c := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
		set(t, c, "1", xdstest.Resource(mesh.TypeCluster, "a", "v1"))
		var seen []*discoveryv3.DiscoveryRequest // written before the bubble is quiet, read after
		callbacks := server.CallbackFuncs{StreamRequestFunc: func(_ int64, r *discoveryv3.DiscoveryRequest) error {
			seen = append(seen, r)
			return nil
		}}
		s := open(t, c, callbacks, loop)
		s.Subscribe(mesh.TypeCluster)
		first := s.ExpectAcked("cds +a@v1")
		set(t, c, "2", xdstest.Resource(mesh.TypeCluster, "a", "v2"))
		s.ExpectText("cds +a@v2")
		seen = nil
		s.Nack(first, "too late")
		s.Ack(first)
		s.Silent()
		if len(seen) != 2 || seen[0].GetErrorDetail() == nil || seen[1].GetResponseNonce() != first.Nonce {
			t.Errorf("the callback saw %v, want the two requests with an old nonce", seen)
		}
		set(t, c, "3", xdstest.Resource(mesh.TypeCluster, "a", "v3"))
		s.Silent() // the control: those two were no acknowledgement of v2, so no watch is open
	})
}
