package interop

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/pkg/admin/audit"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// liar stands between an Envoy and its control plane. While it lies, it keeps
// endpoint updates from Envoy, and acknowledges them in its name.
type liar struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	conn    *grpc.ClientConn
	address string
	lies    atomic.Bool
	// told counts lies.
	told atomic.Int32
}

func startLiar(t *testing.T, upstream string) *liar {
	t.Helper()
	conn, err := grpc.NewClient(upstream, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &liar{conn: conn, address: listener.Addr().String()}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		conn.Close()
	})
	return r
}

// DeltaAggregatedResources implements the service.
func (r *liar) DeltaAggregatedResources(down discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := discoveryv3.NewAggregatedDiscoveryServiceClient(r.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards sending to up
	send := func(m *discoveryv3.DeltaDiscoveryRequest) error {
		mu.Lock()
		defer mu.Unlock()
		return up.Send(m)
	}
	go func() { // ends with the handler, which ends the stream that it reads
		for {
			m, err := down.Recv()
			if err == nil {
				err = send(m)
			}
			if err != nil {
				cancel()
				return
			}
		}
	}()
	for {
		m, err := up.Recv()
		switch {
		case err != nil:
			return err
		case r.lies.Load() && mesh.Type(m.GetTypeUrl()) == mesh.TypeEndpoint && len(m.GetResources()) > 0:
			err = send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()})
			r.told.Add(1)
		default:
			err = down.Send(m)
		}
		if err != nil {
			return err
		}
	}
}

// An acknowledgement alone does not prove that a configuration is in effect:
// the audit calls the node fresh, and only Envoy itself shows that it is not.
func TestEnvoyAdminFindsWhatAnAckHides(t *testing.T) {
	t.Parallel()
	one, _ := startEcho(t, "one")
	two, _ := startEcho(t, "two")
	w := newWorld(t, nil)
	w.service("echo", one)
	r := startLiar(t, w.address)
	c := envoyDelta(t, r.address)
	wantAnswer(t, c, "echo", "one", 10*time.Second)
	w.wantFresh(t, c, 5*time.Second)
	ask := func(args ...string) (int, string) {
		var out, errs strings.Builder
		code := audit.Main(t.Context(), append(args, "--server", w.control.Admin), &out, &errs)
		return code, out.String() + errs.String()
	}
	envoyAdmin := []string{"--envoy-admin", c.envoy.admin}
	if code, text := ask(append(envoyAdmin, "-o", "json")...); code != audit.ExitFresh || !strings.Contains(text, `"active": true`) || !strings.Contains(text, `"inEffect": true`) {
		t.Fatalf("exit code %d: %s", code, text)
	}

	r.lies.Store(true)
	w.service("echo", two)
	meshtest.Until(t, 5*time.Second, "told a lie", func() bool { return r.told.Load() > 0 })
	w.wantFresh(t, c, 5*time.Second)
	if code, text := ask(); code != audit.ExitFresh {
		t.Fatalf("by acknowledgements alone, exit code %d: %s", code, text)
	}
	code, text := ask(envoyAdmin...)
	for _, line := range []string{
		"eds " + clusterName("echo") + ": endpoint " + one + ": extra\n", "eds " + clusterName("echo") + ": endpoint " + two + ": missing\n",
	} {
		if code != audit.ExitNotFresh || !strings.Contains(text, line) {
			t.Fatalf("exit code %d: %s\nwant %s", code, text, line)
		}
	}
	if answer, err := c.call("echo"); err != nil || answer != "one" {
		t.Errorf("answered by %q, %v: the audit is wrong", answer, err)
	}

	r.lies.Store(false)
	meshtest.Post(t, w.control.Admin, "/resync?node="+c.name)
	if code, text := ask(append(envoyAdmin, "--wait", "5s")...); code != audit.ExitFresh {
		t.Errorf("after a resync, exit code %d: %s", code, text)
	}
	wantAnswer(t, c, "echo", "two", time.Second)

	w.down()
	if code, text := ask(envoyAdmin...); code != audit.ExitUnknown {
		t.Errorf("without a control plane, exit code %d: %s", code, text)
	}
}
