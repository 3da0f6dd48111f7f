package proxy_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// endless is a health server whose Watch sends for ever.
type endless struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (endless) Watch(_ *grpc_health_v1.HealthCheckRequest, s grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := s.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func endlessServer(t *testing.T) string {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, endless{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() { s.Stop(); <-done })
	return l.Addr().String()
}

// stream opens a long stream and waits for its first message; what it gives receives until the stream ends.
func (r *rig) stream(ctx context.Context) (ended <-chan error) {
	r.t.Helper()
	s, err := r.grpcClient(echo).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() {
		for {
			if _, err := s.Recv(); err != nil {
				over <- err
				return
			}
		}
	}()
	return over
}

// eject makes the only endpoint look dead to the balancer, as a dial that failed does.
func (r *rig) eject() {
	r.t.Helper()
	l, err := r.set.Cluster(echo).Acquire(r.t.Context(), endpoints.Request{Opaque: true})
	if err != nil {
		r.t.Fatal(err)
	}
	l.DialFailed(upstream.ConnectRefused)
}

// A long gRPC stream on an endpoint that is ejected: it goes on by default, and
// is closed where the service says so, with the reason in the metrics.
func TestEjectionAndALongStream(t *testing.T) {
	for _, closes := range []bool{false, true} {
		r := newRig(t)
		r.putCluster(&discovery.Cluster{HTTP2: true, CloseOnEjection: closes}, endlessServer(t))
		ctx, cancel := context.WithCancel(t.Context())
		over := r.stream(ctx)
		r.eject()
		if closes {
			<-over
			r.counted("endpoint_ejected", 1)
		} else {
			pass := time.NewTimer(100 * time.Millisecond)
			select {
			case err := <-over:
				t.Errorf("closed: %v", err)
			case <-pass.C:
			}
		}
		cancel()
		testwait.Until(t, "nothing is in flight", func() bool { return r.tracker.Active() == 0 })
		for _, b := range r.set.Status()[0].Breakers {
			if b.Active != 0 && b.Breaker == endpoints.Requests {
				t.Errorf("%+v", b)
			}
		}
	}
}

// The breaker on requests falls below what is active: the newest stream goes, the older one stays.
func TestLoweredLimitAndLongStreams(t *testing.T) {
	r := newRig(t)
	addr := endlessServer(t)
	both := [discovery.Priorities]discovery.Limits{discovery.DefaultLimits, discovery.DefaultLimits}
	r.putCluster(&discovery.Cluster{HTTP2: true, CloseOnOverload: true}, addr)
	ctx, cancel := context.WithCancel(t.Context())
	older := r.stream(ctx)
	newer := r.stream(ctx)
	both[0].Requests = 1
	r.putCluster(&discovery.Cluster{HTTP2: true, CloseOnOverload: true, Breakers: &both}, addr)
	<-newer
	r.counted("breaker_requests", 1)
	select {
	case err := <-older:
		t.Errorf("the older one ended: %v", err)
	default:
	}
	// What is over is shed at once, in the words of the breaker.
	status, h, _ := r.get(echo)
	if status != http.StatusServiceUnavailable || !hasReason(h, "breaker_requests") {
		t.Errorf("%d %v", status, h)
	}
	cancel()
	<-older
}

// An opaque connection is closed, too.
func TestEjectionAndATCPConnection(t *testing.T) {
	r := newRig(t)
	up := listen(t, "127.0.0.1:0")
	defer func() { _ = up.Close() }()
	r.putCluster(&discovery.Cluster{CloseOnEjection: true}, up.Addr().String())
	c, err := net.Dial("tcp", r.serveTCP(echo))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	peer, err := up.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	r.eject()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("open")
	}
	r.counted("endpoint_ejected", 1)
}

func hasReason(h http.Header, reason string) bool {
	return strings.Contains(h.Get("Proxy-Status"), "reason="+reason)
}

// The breaker on connections sheds in its own words, and the endpoint is not blamed.
func TestConnectionsThatAreOneTooMany(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		r := newRig(t)
		entered, release := make(chan struct{}, 1), make(chan struct{})
		slow := newBackend(t, "slow", func(http.ResponseWriter, *http.Request) {
			entered <- struct{}{}
			<-release
		})
		both := [discovery.Priorities]discovery.Limits{discovery.DefaultLimits, discovery.DefaultLimits}
		both[0].Connections = 0
		if !h2 {
			both[0].Connections = 1
		}
		r.putCluster(&discovery.Cluster{HTTP2: h2, Breakers: &both}, slow.addr)
		first := make(chan int, 1)
		if !h2 {
			go func() {
				status, _, _ := r.get(echo)
				first <- status
			}()
			<-entered
		}
		status, h, _ := r.get(echo)
		if status != http.StatusServiceUnavailable || !hasReason(h, "breaker_connections") {
			t.Errorf("http2=%v: %d %v", h2, status, h)
		}
		if e := r.set.Status()[0].Endpoints[0]; e.Ejected || e.Total.Failed > 0 || e.Total.ConnectFailed > 0 {
			t.Errorf("blamed: %+v", e)
		}
		close(release)
		if !h2 {
			if got := <-first; got != http.StatusOK {
				t.Errorf("the first: %d", got)
			}
		}
	}
}
