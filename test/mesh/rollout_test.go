package mesh

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/admin/drains"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
	"github.com/freshmesh/freshmesh/pkg/history"
)

// callee is a gRPC server that answers any call with its name: one time, or for
// a method Stream again and again. It counts calls, which health checks are not.
type callee struct {
	name, address string
	server        *grpc.Server
	health        *health.Server
	calls         atomic.Int64
}

func startCallee(t *testing.T, name string) *callee {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &callee{name: name, address: l.Addr().String(), health: health.NewServer()}
	c.server = grpc.NewServer(grpc.UnknownServiceHandler(c.answer))
	grpc_health_v1.RegisterHealthServer(c.server, c.health)
	done := make(chan error, 1)
	go func() { done <- c.server.Serve(l) }()
	t.Cleanup(func() {
		c.server.Stop()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return c
}

func (c *callee) answer(_ any, s grpc.ServerStream) error {
	if err := s.RecvMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	c.calls.Add(1)
	method, _ := grpc.MethodFromServerStream(s)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		if err := s.SendMsg(wrapperspb.String(c.name)); err != nil || !strings.HasSuffix(method, "Stream") {
			return err
		}
		select {
		case <-s.Context().Done():
			return s.Context().Err()
		case <-again.C:
		}
	}
}

// member is a pod of the service echo.
type member struct {
	pod, address string
	terminating  bool
}

// rollout writes the service echo, which speaks gRPC.
func rollout(t *testing.T, m *meshtest.Manifests, annotations string, members ...member) {
	t.Helper()
	text := "apiVersion: v1\nkind: Service\nmetadata: {name: echo, annotations: {" + annotations + "}}\nspec: {ports: [{name: grpc, port: 8080, appProtocol: grpc}]}\n"
	for _, e := range members {
		ip, port, _ := strings.Cut(e.address, ":")
		text += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: echo-%s, labels: {kubernetes.io/service-name: echo}}
addressType: IPv4
ports: [{name: grpc, port: %s}]
endpoints: [{addresses: [%q], conditions: {ready: %v, serving: true, terminating: %v}, targetRef: {kind: Pod, namespace: default, name: %s}}]
`, e.pod, port, ip, !e.terminating, e.terminating, e.pod)
	}
	path := filepath.Join(m.Dir, "echo.yaml")
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// caller is a gRPC client of a proxy that never retries anything.
func caller(t *testing.T, proxy *meshtest.Proxy) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///"+proxy.Outbound, grpc.WithAuthority("echo:8080"), grpc.WithDisableRetry(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func call(ctx context.Context, c *grpc.ClientConn) (string, error) {
	var answer wrapperspb.StringValue
	err := c.Invoke(ctx, "/test.Echo/Say", &emptypb.Empty{}, &answer)
	return answer.GetValue(), err
}

// startRollout starts a control plane, and a proxy through which a first call was answered.
func startRollout(t *testing.T, annotations string, members ...member) (*meshtest.Manifests, *meshtest.Control, *meshtest.Proxy) {
	t.Helper()
	m := meshtest.NewManifests(t)
	rollout(t, m, annotations, members...)
	control := meshtest.StartControl(t, m.Source(), meshtest.Policy)
	proxy := meshtest.StartProxy(t, control.XDS, nil)
	c := caller(t, proxy)
	testwait.Within(t, 20*time.Second, "the first answer", func() bool {
		_, err := call(t.Context(), c)
		return err == nil
	})
	return m, control, proxy
}

// load calls again and again over several connections until stop, which gives how many calls there were.
// Whoever fails is an error of the test.
func load(t *testing.T, proxy *meshtest.Proxy) (stop func() int64) {
	t.Helper()
	var (
		wg    sync.WaitGroup
		over  atomic.Bool
		calls atomic.Int64
	)
	for range 4 {
		c := caller(t, proxy)
		wg.Go(func() {
			for !over.Load() {
				if _, err := call(t.Context(), c); err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
				calls.Add(1)
			}
		})
	}
	return func() int64 {
		over.Store(true)
		wg.Wait()
		return calls.Load()
	}
}

// TestGoAwayRace: an endpoint says GOAWAY long before the control plane has
// heard that it leaves. Who was on it connects again, to it or elsewhere, and no call is lost, whether it
// still takes connections (the proxy before a pod that drains) or not (a gRPC server that stops).
func TestGoAwayRace(t *testing.T) {
	for _, kind := range []string{"a server that stops", "a proxy that drains"} {
		t.Run(kind, func(t *testing.T) {
			a, b := startCallee(t, "a"), startCallee(t, "b")
			leaving, goAway := a.address, func() { go a.server.GracefulStop() }
			if kind == "a proxy that drains" {
				apps := meshtest.NewManifests(t)
				apps.Put(meshtest.Service{Name: "app", AppProtocol: "grpc", Addresses: []string{a.address}})
				const app = "app.default.svc.cluster.local:8080"
				own := meshtest.StartProxy(t, meshtest.StartControl(t, apps.Source(), meshtest.Policy).XDS, func(c *dataplane.Config) {
					c.NodeID, c.DrainTime = "a.default", 20*time.Second
					c.Listens = []dataplane.Listen{{Address: "127.0.0.1:0", Cluster: app, HTTP: true}}
				})
				leaving, goAway = own.Listens[app], func() { meshtest.Post(t, own.Admin, "/drain_listeners?graceful") }
			}
			m, _, proxy := startRollout(t, "", member{pod: "a", address: leaving}, member{pod: "b", address: b.address})
			stop := load(t, proxy)
			testwait.Within(t, 20*time.Second, "calls to both", func() bool { return a.calls.Load() > 20 && b.calls.Load() > 20 })
			goAway()
			before := a.calls.Load() + b.calls.Load()
			testwait.Within(t, 20*time.Second, "calls after GOAWAY", func() bool { return a.calls.Load()+b.calls.Load() > before+200 })
			rollout(t, m, "", member{pod: "a", address: leaving, terminating: true}, member{pod: "b", address: b.address})
			testwait.Within(t, 20*time.Second, "nothing goes to what leaves", func() bool {
				from := a.calls.Load()
				before = b.calls.Load()
				testwait.Within(t, 20*time.Second, "calls to the other", func() bool { return b.calls.Load() > before+50 })
				return a.calls.Load() == from
			})
			if n := stop(); n == 0 {
				t.Error("no call was made")
			}
		})
	}
}

// holds waits until the proxy has acknowledged what is current, with so many endpoints of echo.
func holds(t *testing.T, control *meshtest.Control, what string, endpoints int) {
	t.Helper()
	testwait.Within(t, 20*time.Second, what, func() bool {
		s := story(t, control, "--node", "proxy-1", "--cluster", "echo:8080")
		return s.Verdict == history.Current && slices.ContainsFunc(s.Holds, func(h history.Hold) bool { return h.Type == "eds" && h.Endpoints == endpoints })
	})
}

// TestStreamsOutliveTheDrain: the barrier does not wait for streams that are open on a pod: it says that nothing new
// comes. They go on until the pod is removed, and from then for the service's drain time.
func TestStreamsOutliveTheDrain(t *testing.T) {
	t.Parallel() // most of it is the wait for a server that can know its nodes
	a, b := startCallee(t, "a"), startCallee(t, "b")
	const drain = `freshmesh.dev/drain: "500ms"`
	m, control, proxy := startRollout(t, drain, member{pod: "a", address: a.address})
	stream, err := caller(t, proxy).NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/test.Echo/Stream")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&emptypb.Empty{}); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	goesOn := func(what string) {
		t.Helper()
		for range 5 {
			var name wrapperspb.StringValue
			if err := stream.RecvMsg(&name); err != nil || name.GetValue() != "a" {
				t.Fatalf("%s: %q, %v", what, name.GetValue(), err)
			}
		}
	}
	goesOn("ready")
	rollout(t, m, drain, member{pod: "a", address: a.address, terminating: true}, member{pod: "b", address: b.address})
	if code, out := drainCommand(t, "--server", control.Admin, "--pod", "default/a", "--timeout", "60s"); code != drains.ExitDrained {
		t.Fatalf("%d\n%s", code, out)
	}
	before := a.calls.Load()
	c := caller(t, proxy)
	for range 20 {
		if name, err := call(t.Context(), c); err != nil || name != "b" {
			t.Fatalf("a new call after the drain: %q, %v", name, err)
		}
	}
	goesOn("drained")
	// What is drained stays so, when the other one terminates too, and when nothing else is left.
	rollout(t, m, drain, member{pod: "a", address: a.address, terminating: true}, member{pod: "b", address: b.address, terminating: true})
	holds(t, control, "b terminates", 2)
	for range 20 {
		if name, err := call(t.Context(), c); err != nil || name != "b" {
			t.Fatalf("a call while both terminate: %q, %v", name, err)
		}
	}
	rollout(t, m, drain, member{pod: "a", address: a.address, terminating: true})
	holds(t, control, "only a is left", 1)
	if name, err := call(t.Context(), c); status.Code(err) != codes.Unavailable {
		t.Errorf("a call with nothing but drained pods: %q, %v", name, err)
	}
	goesOn("the only one left")
	if n := a.calls.Load() - before; n > 0 {
		t.Errorf("%d calls came after the drain", n)
	}
	removed := time.Now()
	rollout(t, m, drain, member{pod: "b", address: b.address})
	for err == nil {
		err = stream.RecvMsg(&wrapperspb.StringValue{})
	}
	if took := time.Since(removed); took < 500*time.Millisecond {
		t.Errorf("ended %v after the pod was removed, before its drain time", took)
	}
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "endpoint_removed") {
		t.Errorf("its end does not say why: %v", err)
	}
}

// TestNotServingFirst: a server whose health turns NOT_SERVING before it stops
// loses no call, though the control plane hears of neither.
func TestNotServingFirst(t *testing.T) {
	a, b := startCallee(t, "a"), startCallee(t, "b")
	_, _, proxy := startRollout(t, `freshmesh.dev/health-check: "grpc, interval=50ms, timeout=5s, unhealthy=1, healthy=1"`,
		member{pod: "a", address: a.address}, member{pod: "b", address: b.address})
	stop := load(t, proxy)
	testwait.Within(t, 20*time.Second, "calls to both", func() bool { return a.calls.Load() > 20 && b.calls.Load() > 20 })
	a.health.Shutdown() // NOT_SERVING for every service
	testwait.Within(t, 20*time.Second, "nothing goes to it", func() bool {
		from, before := a.calls.Load(), b.calls.Load()
		testwait.Within(t, 20*time.Second, "calls to the other", func() bool { return b.calls.Load() > before+50 })
		return a.calls.Load() == from
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		a.server.GracefulStop()
	}()
	select {
	case <-stopped:
	case <-time.NewTimer(20 * time.Second).C:
		t.Error("the server waits for streams of health checks")
	}
	before := b.calls.Load()
	testwait.Within(t, 20*time.Second, "calls go on", func() bool { return b.calls.Load() > before+100 })
	stop()
}
