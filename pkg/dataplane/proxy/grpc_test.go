package proxy_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// healthServer answers Check by service name: "slow" hangs, "missing" is an
// error that the server makes, anything else is serving.
type healthServer struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (healthServer) Check(ctx context.Context, q *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	switch q.GetService() {
	case "slow":
		<-ctx.Done()
		return nil, ctx.Err()
	case "missing":
		return nil, status.Error(codes.NotFound, "no service, 100% sure")
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-trailer", "kept"))
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func (healthServer) Watch(_ *grpc_health_v1.HealthCheckRequest, s grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	for range 3 {
		if err := s.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}); err != nil {
			return err
		}
	}
	return status.Error(codes.Aborted, "enough")
}

func grpcServer(t *testing.T, addr string) (string, *grpc.Server) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, healthServer{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return l.Addr().String(), s
}

func (r *rig) grpcClient(authority string) grpc_health_v1.HealthClient {
	r.t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority(authority), grpc.WithDisableRetry())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cc.Close() })
	return grpc_health_v1.NewHealthClient(cc)
}

func TestGRPC(t *testing.T) {
	r := newRig(t)
	addr, _ := grpcServer(t, "127.0.0.1:0")
	r.putCluster(&discovery.Cluster{HTTP2: true}, addr)
	c := r.grpcClient(echo)
	var trailer metadata.MD
	if _, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer)); err != nil || trailer.Get("x-trailer")[0] != "kept" {
		t.Errorf("unary: %v, trailer %v", err, trailer)
	}
	_, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "missing"})
	if status.Code(err) != codes.NotFound || status.Convert(err).Message() != "no service, 100% sure" {
		t.Errorf("trailers-only: %v", err)
	}
	s, err := c.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	for n := 0; err == nil; n++ {
		if _, err = s.Recv(); err != nil && n != 3 {
			t.Errorf("stream ended after %d", n)
		}
	}
	if status.Code(err) != codes.Aborted {
		t.Errorf("stream: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "slow"}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("deadline: %v", err)
	}
}

func TestGRPCErrorsOfOurs(t *testing.T) {
	r := newRig(t)
	_, err := r.grpcClient("nobody:1").Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "no_such_service") {
		t.Errorf("unknown: %v", err)
	}
	addr := testaddr.Refused(t)
	r.putCluster(&discovery.Cluster{HTTP2: true}, addr)
	_, err = r.grpcClient(echo).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "all_ejected: "+addr) {
		t.Errorf("dead: %v", err)
	}
}

// A deadline that passes during discovery is a deadline, and not a client that left.
func TestGRPCDeadlineDuringDiscovery(t *testing.T) {
	r := newRig(t)
	r.disc.say(true, nil)
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+"/s/m", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	q.Host = echo
	q.Header.Set("Content-Type", "application/grpc")
	q.Header.Set("Grpc-Timeout", "20m")
	resp, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if got := resp.Header.Get("Proxy-Status"); resp.Header.Get("Grpc-Status") != "4" || !strings.Contains(got, "reason=deadline") {
		t.Errorf("grpc-status %s, Proxy-Status %s; want 4 and the reason deadline", resp.Header.Get("Grpc-Status"), got)
	}
}

// A server that restarts gracefully sends GOAWAY; no call is lost, though
// gRPC calls are POSTs.
func TestGRPCServerGoesAway(t *testing.T) {
	r := newRig(t)
	a, sa := grpcServer(t, "127.0.0.1:0")
	b, _ := grpcServer(t, "127.0.0.1:0")
	r.putCluster(&discovery.Cluster{HTTP2: true}, a, b)
	c := r.grpcClient(echo)
	calls := func(n int) {
		for range n {
			if _, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	calls(50)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		sa.GracefulStop()
	}()
	calls(200)
	<-stopped
	calls(50)
}
