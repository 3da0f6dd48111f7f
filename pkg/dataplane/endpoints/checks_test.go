package endpoints_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// quick is a health check that a test can wait for.
func quick(change func(*discovery.HealthCheck)) []discovery.HealthCheck {
	h := discovery.DefaultHealthCheck
	h.Timeout, h.Interval, h.NoTrafficInterval, h.JitterPercent = 5*time.Second, 5*time.Millisecond, 5*time.Millisecond, 0
	h.UnhealthyInterval, h.UnhealthyEdgeInterval, h.HealthyEdgeInterval = h.Interval, h.Interval, h.Interval
	change(&h)
	return []discovery.HealthCheck{h}
}

// checked is a cluster of one endpoint that has this check.
func checked(t *testing.T, addr string, checks []discovery.HealthCheck) *endpoints.Set {
	t.Helper()
	set := endpoints.New(endpoints.Config{Reporter: &world{t: t}, FailFast: time.Second})
	t.Cleanup(set.Close)
	_ = set.Apply(&discovery.Cluster{Name: "c", HealthChecks: checks, Endpoints: []mesh.Endpoint{
		{EndpointKey: mesh.EndpointKey{Address: netip.MustParseAddrPort(addr)}, Weight: 1},
	}})
	return set
}

func await(t *testing.T, set *endpoints.Set, what string, ok func(endpoints.EndpointStatus) bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		st := set.Status()[0].Endpoints[0]
		if ok(st) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never: %s: %+v", what, st)
		}
	}
}

func healthy(e endpoints.EndpointStatus) bool { return !e.FailedCheck && !e.CheckPending }
func failing(e endpoints.EndpointStatus) bool { return e.FailedCheck && !e.CheckPending }

func TestHTTPCheck(t *testing.T) {
	var status, seen atomic.Int64
	status.Store(200)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "c" && r.URL.Path == "/healthz" && r.Method == http.MethodGet {
			seen.Add(1)
			w.WriteHeader(int(status.Load()))
		}
	}))
	defer srv.Close()
	set := checked(t, srv.Listener.Addr().String(), quick(func(h *discovery.HealthCheck) { h.Kind, h.Path = discovery.CheckHTTP, "/healthz" }))
	// Until the first result requests wait.
	l, err := set.Cluster("c").Acquire(t.Context(), endpoints.Request{})
	if err != nil {
		t.Fatal(err)
	}
	l.End(true)
	await(t, set, "healthy", healthy)
	status.Store(500)
	await(t, set, "unhealthy after three", failing)
	if st := set.Status()[0].Endpoints[0]; !strings.Contains(st.CheckWhy, "500") {
		t.Errorf("%+v", st)
	}
	_, err = set.Cluster("c").Acquire(t.Context(), endpoints.Request{})
	if upstream.ReasonOf(err) != upstream.AllEjected || !strings.Contains(err.Error(), "the only endpoint of c fails its health check") {
		t.Errorf("%v", err)
	}
	status.Store(200)
	await(t, set, "healthy after two", healthy)
	set.Close()
	if n := seen.Load(); n < 6 {
		t.Errorf("%d checks", n)
	}
}

func TestTCPCheck(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var answer atomic.Pointer[string]
	answer.Store(new("x +PONG and more"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4)
			if _, err := io.ReadFull(c, buf); err == nil && string(buf) == "PING" {
				_, _ = io.WriteString(c, *answer.Load())
			}
			_ = c.Close()
		}
	}()
	defer func() { _ = l.Close(); <-done }()
	set := checked(t, l.Addr().String(), quick(func(h *discovery.HealthCheck) {
		h.Kind, h.Send, h.Receive = discovery.CheckTCP, []byte("PING"), [][]byte{[]byte("+PONG"), []byte("more")}
	}))
	await(t, set, "healthy", healthy)
	answer.Store(new("more +PONG"))
	await(t, set, "unhealthy: the pieces come in another order", failing)
	set.Close()
}

// grpcHealth serves grpc.health.v1; without Watch where watch is false.
func grpcHealth(t *testing.T, watch bool) (*grpchealth.Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := grpchealth.NewServer()
	s := grpc.NewServer()
	if watch {
		healthpb.RegisterHealthServer(s, h)
	} else {
		healthpb.RegisterHealthServer(s, checkOnly{inner: h})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() { s.Stop(); <-done })
	return h, l.Addr().String()
}

type checkOnly struct {
	healthpb.UnimplementedHealthServer
	inner *grpchealth.Server
}

func (c checkOnly) Check(ctx context.Context, q *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return c.inner.Check(ctx, q)
}

func TestGRPCCheck(t *testing.T) {
	for _, watch := range []bool{true, false} {
		h, addr := grpcHealth(t, watch)
		checks := quick(func(h *discovery.HealthCheck) { h.Kind, h.Service = discovery.CheckGRPC, "s" })
		if watch {
			// Only the Watch can tell in time.
			checks[0].Interval, checks[0].NoTrafficInterval, checks[0].UnhealthyInterval = time.Hour, time.Hour, time.Hour
			checks[0].UnhealthyEdgeInterval, checks[0].HealthyEdgeInterval = 5*time.Millisecond, 5*time.Millisecond
		}
		checks[0].Healthy = 1
		h.SetServingStatus("s", healthpb.HealthCheckResponse_SERVING)
		set := checked(t, addr, checks)
		await(t, set, "healthy", healthy)
		h.SetServingStatus("s", healthpb.HealthCheckResponse_NOT_SERVING)
		await(t, set, "unhealthy", failing)
		h.SetServingStatus("s", healthpb.HealthCheckResponse_SERVING)
		await(t, set, "healthy again", healthy)
		set.Close()
	}
}

// A check that begins for endpoints in use takes none out before it has a result.
func TestCheckAddedLater(t *testing.T) {
	set := checked(t, acceptor(t), nil)
	dc := *set.Cluster("c").Config()
	dc.HealthChecks = quick(func(h *discovery.HealthCheck) {
		h.Kind, h.InitialJitter = discovery.CheckTCP, time.Hour
	})
	_ = set.Apply(&dc)
	if st := set.Status()[0]; st.Phase != endpoints.Serving || !st.Endpoints[0].CheckPending {
		t.Errorf("%+v", st)
	}
}
