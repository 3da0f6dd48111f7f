package mitm

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

const (
	// soon is ample for anything that must happen.
	soon  = 30 * time.Second
	never = time.Hour
	types = "type.googleapis.com/test."
)

type (
	request      = discoveryv3.DeltaDiscoveryRequest
	response     = discoveryv3.DeltaDiscoveryResponse
	serverStream = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	clientStream = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
)

// rig is a gRPC server, the proxy before it, and a gRPC client of the proxy.
type rig struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	proxy  *Proxy
	server *grpc.Server
	health healthv1.HealthClient
	ads    discoveryv3.AggregatedDiscoveryServiceClient
	// direct is a client of the server without the proxy.
	direct healthv1.HealthClient
	// serve answers a delta stream.
	serve func(serverStream) error
	// received counts requests that reached echo, ended its streams that ended.
	received, ended atomic.Int32
}

func newRig(t *testing.T, serve func(serverStream) error, options ...grpc.ServerOption) *rig {
	t.Helper()
	r := &rig{serve: serve}
	if serve == nil {
		r.serve = r.echo
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.server = grpc.NewServer(append(options, grpc.MaxRecvMsgSize(64<<20))...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(r.server, r)
	healthv1.RegisterHealthServer(r.server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(listener) }()
	t.Cleanup(func() {
		r.server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	if r.proxy, err = Listen(listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.proxy.Close(); err != nil {
			t.Error(err)
		}
		if open := r.proxy.Stats().Open; open != 0 {
			t.Errorf("%d connections open after Close", open)
		}
	})
	conn := connect(t, r.proxy.Addr().String())
	r.health, r.ads = healthv1.NewHealthClient(conn), discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	r.direct = healthv1.NewHealthClient(connect(t, listener.Addr().String()))
	return r
}

func connect(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	quick := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: soon}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *rig) DeltaAggregatedResources(s serverStream) error { return r.serve(s) }

// echo answers each request with its names and its nonce.
func (r *rig) echo(s serverStream) error {
	defer r.ended.Add(1)
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r.received.Add(1)
		answer := &response{TypeUrl: m.GetTypeUrl(), Nonce: m.GetResponseNonce(), RemovedResources: m.GetResourceNamesSubscribe()}
		if err := s.Send(answer); err != nil {
			return err
		}
	}
}

// stream opens a delta stream of a node, and sees that it works.
func (r *rig) stream(t *testing.T, node string) *peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	t.Cleanup(cancel)
	s, err := r.ads.DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{clientStream: s, cancel: cancel}
	p.send(t, &request{Node: &corev3.Node{Id: node}, TypeUrl: types + "Hello", ResponseNonce: "hello"})
	p.want(t, "hello")
	return p
}

// peer is the client's end of a stream.
type peer struct {
	clientStream
	cancel context.CancelFunc
}

func (p *peer) send(t *testing.T, m *request) {
	t.Helper()
	if err := p.Send(m); err != nil {
		t.Fatalf("send: %v", err)
	}
}

// ask sends requests that have only a nonce.
func (p *peer) ask(t *testing.T, nonces ...string) {
	t.Helper()
	for _, n := range nonces {
		p.send(t, &request{TypeUrl: types + "Word", ResponseNonce: n})
	}
}

// want receives responses with these nonces.
func (p *peer) want(t *testing.T, nonces ...string) {
	t.Helper()
	for i, n := range nonces {
		m, err := p.Recv()
		if err != nil {
			t.Fatalf("receive %q: %v", n, err)
		}
		if m.GetNonce() != n {
			t.Fatalf("answer %d is %q, want %q", i, m.GetNonce(), n)
		}
	}
}

// passes makes calls of another connection, or stream: a time in which the
// server and this machine have been at work, for what must not happen meanwhile.
func passes(t *testing.T, c healthv1.HealthClient) {
	t.Helper()
	for range 50 {
		check(t, c)
	}
}

func check(t *testing.T, c healthv1.HealthClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if _, err := c.Check(ctx, &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatalf("check: %v", err)
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testwait.Within(t, soon, what, holds)
}

func ofNode(id string) func(Stream) bool { return func(s Stream) bool { return s.NodeID == id } }

func withNonce(d Direction, nonce string) func(Message) bool {
	return func(m Message) bool { return m.Direction == d && m.Nonce == nonce }
}

// pinging has the server ping an idle client each second.
func pinging() grpc.ServerOption {
	return grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Second, Timeout: 2 * time.Second})
}
