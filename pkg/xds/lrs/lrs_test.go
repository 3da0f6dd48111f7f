package lrs

import (
	"context"
	"math"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/refresh"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ Sink = (*refresh.Refresher)(nil)

type sink struct {
	mu      sync.Mutex // guards reports
	reports []refresh.Report
}

func (s *sink) Submit(r refresh.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = append(s.reports, r)
}

func endpoint(ip string, port uint32, stats *endpointv3.UpstreamEndpointStats) *endpointv3.UpstreamEndpointStats {
	stats.Address = &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
	return stats
}

func connectFailed(v *structpb.Value) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{mesh.ConnectFailuresKey: v}}
}

func request(node string, clusters ...*endpointv3.ClusterStats) *loadstatsv3.LoadStatsRequest {
	req := &loadstatsv3.LoadStatsRequest{ClusterStats: clusters}
	if node != "" {
		req.Node = &corev3.Node{Id: node}
	}
	return req
}

func cluster(name string, localities ...*endpointv3.UpstreamLocalityStats) *endpointv3.ClusterStats {
	return &endpointv3.ClusterStats{ClusterName: name, UpstreamLocalityStats: localities}
}

func locality(failConnects uint64, endpoints ...*endpointv3.UpstreamEndpointStats) *endpointv3.UpstreamLocalityStats {
	return &endpointv3.UpstreamLocalityStats{TotalFailConnections: failConnects, UpstreamEndpointStats: endpoints}
}

func TestDecode(t *testing.T) {
	req := request("n",
		cluster("fine", locality(0, endpoint("10.0.0.9", 80, &endpointv3.UpstreamEndpointStats{TotalIssuedRequests: 9, TotalSuccessfulRequests: 9}))),
		cluster("envoy", locality(4)),
		cluster("ours",
			locality(2,
				endpoint("10.0.0.1", 80, &endpointv3.UpstreamEndpointStats{TotalErrorRequests: 1, TotalIssuedRequests: 7, Metadata: connectFailed(structpb.NewNumberValue(2))}),
				endpoint("10.0.0.2", 80, &endpointv3.UpstreamEndpointStats{TotalIssuedRequests: 3})),
			locality(0,
				endpoint("::ffff:10.0.0.1", 80, &endpointv3.UpstreamEndpointStats{TotalErrorRequests: 1, TotalIssuedRequests: 1}),
				endpoint("backend.example", 80, &endpointv3.UpstreamEndpointStats{TotalErrorRequests: 5}))),
		cluster("envoy", locality(1)),
	)
	node, got, err := decode(req, "", Limits{}.withDefaults())
	if err != nil || node != "n" {
		t.Fatalf("node %q, %v", node, err)
	}
	want := []refresh.Report{
		{Node: "n", Cluster: "envoy", FailConnects: 5},
		{Node: "n", Cluster: "ours", FailConnects: 2, Endpoints: []refresh.EndpointFailure{
			{Address: netip.MustParseAddrPort("10.0.0.1:80"), Errors: 2, Issued: 8, ConnectFailed: 2},
			{Errors: 5},
		}},
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestDecodeRefuses(t *testing.T) {
	bad := func(v *structpb.Value) *loadstatsv3.LoadStatsRequest {
		return request("n", cluster("c", locality(0, endpoint("10.0.0.1", 80, &endpointv3.UpstreamEndpointStats{Metadata: connectFailed(v)}))))
	}
	small := Limits{MaxBytes: 10_000, MaxClusters: 2, MaxEndpoints: 1}.withDefaults()
	two := locality(0, endpoint("10.0.0.1", 80, &endpointv3.UpstreamEndpointStats{}), endpoint("10.0.0.2", 80, &endpointv3.UpstreamEndpointStats{}))
	for _, tt := range []struct {
		name string
		req  *loadstatsv3.LoadStatsRequest
		node mesh.NodeID
		code codes.Code
		text string
	}{
		{"no node", request(""), "", codes.InvalidArgument, "node.id is empty"},
		{"long node", request(strings.Repeat("n", 1025)), "", codes.InvalidArgument, "1025 bytes"},
		{"another node", request("b"), "a", codes.InvalidArgument, `from "a" to "b"`},
		{"no cluster name", request("n", cluster("c"), cluster("")), "", codes.InvalidArgument, "cluster_stats[1]"},
		{"long cluster name", request("n", cluster(strings.Repeat("c", 1025))), "", codes.InvalidArgument, "cluster_name"},
		{"count is text", bad(structpb.NewStringValue("2")), "", codes.InvalidArgument, "no number"},
		{"count is null", bad(structpb.NewNullValue()), "", codes.InvalidArgument, "no number"},
		{"count is negative", bad(structpb.NewNumberValue(-1)), "", codes.InvalidArgument, "-1"},
		{"count is a fraction", bad(structpb.NewNumberValue(0.5)), "", codes.InvalidArgument, "0.5"},
		{"count is NaN", bad(structpb.NewNumberValue(math.NaN())), "", codes.InvalidArgument, "NaN"},
		{"count is endless", bad(structpb.NewNumberValue(math.Inf(1))), "", codes.InvalidArgument, "Inf"},
		{"many clusters", request("n", cluster("a"), cluster("b"), cluster("c")), "", codes.ResourceExhausted, "3 clusters"},
		{"many endpoints", request("n", cluster("a", two)), "", codes.ResourceExhausted, "more than 1 endpoints"},
		{"many bytes", request("n", &endpointv3.ClusterStats{ClusterName: "a", ClusterServiceName: strings.Repeat("x", 10_000)}), "", codes.ResourceExhausted, "bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, reports, err := decode(tt.req, tt.node, small)
			if status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.text) || reports != nil {
				t.Errorf("%v, %v", reports, err)
			}
		})
	}
}

// serve runs s behind a bufconn and gives a client; both end with the test.
func serve(t *testing.T, s *Server) loadstatsv3.LoadReportingServiceClient {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	loadstatsv3.RegisterLoadReportingServiceServer(server, s)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.Serve(listener); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	conn, err := grpc.NewClient("passthrough:bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		server.Stop()
		wg.Wait()
	})
	return loadstatsv3.NewLoadReportingServiceClient(conn)
}

func open(t *testing.T, client loadstatsv3.LoadReportingServiceClient) grpc.BidiStreamingClient[loadstatsv3.LoadStatsRequest, loadstatsv3.LoadStatsResponse] {
	t.Helper()
	stream, err := client.StreamLoadStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out sink
		stream := open(t, serve(t, New(Config{Sink: &out, Interval: 3 * time.Second})))
		if err := stream.Send(request("n")); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if !answer.GetSendAllClusters() || !answer.GetReportEndpointGranularity() ||
			answer.GetLoadReportingInterval().AsDuration() != 3*time.Second || len(answer.GetClusters()) != 0 {
			t.Errorf("answer %v", answer)
		}
		for _, c := range []*endpointv3.ClusterStats{cluster("fine", locality(0)), cluster("bad", locality(2))} {
			if err := stream.Send(request("", c)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		want := []refresh.Report{{Node: "n", Cluster: "bad", FailConnects: 2}}
		if d := cmp.Diff(want, out.reports); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		// An hour of silence is the client's right: nothing failed.
		time.Sleep(time.Hour) // bubble time
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); status.Code(err) != codes.OK && err.Error() != "EOF" {
			t.Errorf("end: %v %v", m, err)
		}
	})
}

func TestStreamEndsWithStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := open(t, serve(t, New(Config{Sink: &sink{}})))
		if err := stream.Send(request("")); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("first request without node: %v", err)
		}
	})
}

func TestDoneEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		stream := open(t, serve(t, New(Config{Sink: &sink{}, Done: done})))
		if err := stream.Send(request("n")); err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || m.GetLoadReportingInterval().AsDuration() != 10*time.Second {
			t.Fatalf("%v %v", m, err)
		}
		close(done)
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("%v", err)
		}
	})
}

// Whatever bytes come, decode gives reports of failures with names, or a status.
func FuzzDecode(f *testing.F) {
	for _, m := range []*loadstatsv3.LoadStatsRequest{
		request("n"),
		request("n", cluster("c", locality(3, endpoint("10.0.0.1", 80, &endpointv3.UpstreamEndpointStats{Metadata: connectFailed(structpb.NewNumberValue(1))})))),
		request("", cluster("", locality(1))),
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, "")
		f.Add(b, "n")
	}
	f.Fuzz(func(t *testing.T, b []byte, node string) {
		var req loadstatsv3.LoadStatsRequest
		if proto.Unmarshal(b, &req) != nil {
			return
		}
		id, reports, err := decode(&req, mesh.NodeID(node), Limits{}.withDefaults())
		if err != nil {
			if c := status.Code(err); c != codes.InvalidArgument && c != codes.ResourceExhausted {
				t.Fatalf("status %v", err)
			}
			return
		}
		seen := map[string]bool{}
		for _, r := range reports {
			if r.Node != id || id == "" || r.Cluster == "" || seen[r.Cluster] || !r.Failed() || len(r.Endpoints) > 64 {
				t.Fatalf("report %+v of %q", r, id)
			}
			seen[r.Cluster] = true
		}
	})
}
