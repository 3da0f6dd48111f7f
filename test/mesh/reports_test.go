package mesh

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/freshmesh/freshmesh/internal/apiproxy"
	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/kube"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// reported is a control plane over a cluster of services s0, s1, …, each with
// one endpoint, whose API counts what it is asked. Live reads are all that
// asks for single services.
type reported struct {
	*testing.T
	api     *kubetest.Server
	proxy   *apiproxy.Proxy
	control *meshtest.Control
}

const reads = "get services"

func startReported(t *testing.T, services int) *reported {
	t.Helper()
	api := kubetest.NewServer(t)
	for i := range services {
		name := fmt.Sprintf("s%d", i)
		api.Put(kubetest.Service(name, 8080), kubetest.Slice(name+"-1", name, fmt.Sprintf("10.0.0.%d:8080", i+1)))
	}
	proxy := apiproxy.Start(t, "http://"+api.Address, nil)
	source, err := kube.New(kube.Config{Kubeconfig: proxy.Kubeconfig(), CheckInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	control := meshtest.StartControl(t, source, patient, rareReports, func(c *controlplane.Config) { c.MaxNodeStreams = 2000 })
	testwait.Within(t, 10*time.Second, "synced", func() bool { return control.Audit(t).Server.Synced })
	return &reported{t, api, proxy, control}
}

func clusterOf(i int) string { return fmt.Sprintf("s%d.default.svc.cluster.local:8080", i) }

func (r *reported) dial() *grpc.ClientConn {
	r.Helper()
	conn, err := grpc.NewClient(r.control.XDS, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = conn.Close() })
	return conn
}

type reports = grpc.BidiStreamingClient[loadstatsv3.LoadStatsRequest, loadstatsv3.LoadStatsResponse]

// open begins a stream of load reports; nil when the server refuses it.
func (r *reported) open(conn *grpc.ClientConn, node string) reports {
	s, err := loadstatsv3.NewLoadReportingServiceClient(conn).StreamLoadStats(r.Context())
	if err != nil {
		return nil
	}
	if s.Send(&loadstatsv3.LoadStatsRequest{Node: &corev3.Node{Id: node}}) != nil {
		return nil
	}
	if _, err := s.Recv(); err != nil {
		return nil
	}
	return s
}

// failing is a report of one dead endpoint in each cluster.
func failing(clusters ...string) *loadstatsv3.LoadStatsRequest {
	m := &loadstatsv3.LoadStatsRequest{}
	for _, c := range clusters {
		m.ClusterStats = append(m.ClusterStats, &endpointv3.ClusterStats{
			ClusterName: c,
			UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
				TotalFailConnections: 3,
				UpstreamEndpointStats: []*endpointv3.UpstreamEndpointStats{{
					Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
						Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8080},
					}}},
					TotalErrorRequests: 3, TotalIssuedRequests: 3,
				}},
			}},
		})
	}
	return m
}

// A thousand nodes, each on a stream of its own, report the same endpoint: the
// API is asked once.
func TestStormOfReportsCostsOneRead(t *testing.T) {
	const nodes, perConnection = 1000, 100
	r := startReported(t, 1)
	streams := make([]reports, nodes)
	var opening sync.WaitGroup
	for c := range nodes / perConnection {
		conn := r.dial()
		opening.Go(func() {
			for i := range perConnection {
				n := c*perConnection + i
				streams[n] = r.open(conn, fmt.Sprintf("node-%d", n))
			}
		})
	}
	opening.Wait()
	// Reports that come while the read is under way share it; it takes 3 s here,
	// so that a busy machine delivers them all in time.
	r.proxy.Set(func(f *apiproxy.Faults) { f.Delay = 1500 * time.Millisecond })
	for n, s := range streams {
		if s == nil {
			t.Fatalf("stream %d was refused", n)
		}
		if err := s.Send(failing(clusterOf(0))); err != nil {
			t.Fatal(err)
		}
	}
	testwait.Within(t, 20*time.Second, "a verdict for each node", func() bool { return r.control.Metric(t, current) >= nodes })
	if n := r.proxy.Count(reads); n != 1 {
		t.Errorf("the API was read %d times, want once", n)
	}
	if n := r.control.Metric(t, "freshmesh_refresh_reads_total"); n != 1 {
		t.Errorf("%v reads are counted, want 1", n)
	}
	if n := r.control.Metric(t, current); n != nodes {
		t.Errorf("%v verdicts, want %d", n, nodes)
	}
}

// sentTo is how many responses a node was sent.
func (r *reported) sentTo(node string) int {
	n := 0
	for line := range strings.Lines(r.control.Log.String()) {
		if strings.Contains(line, "response sent: node="+node+" ") {
			n++
		}
	}
	return n
}

// lie keeps calling f until the time is over, from a few goroutines with a
// connection each. It gives how long that took.
func (r *reported) lie(f func(conn *grpc.ClientConn, turn int)) time.Duration {
	began := time.Now()
	var liars sync.WaitGroup
	for l := range 4 {
		conn := r.dial()
		liars.Go(func() {
			for turn := 0; time.Since(began) < 1500*time.Millisecond; turn++ {
				f(conn, turn*4+l)
			}
		})
	}
	liars.Wait()
	return time.Since(began)
}

// repeat reports again and again, as clients do whose endpoints go on failing: what was read of a service a moment before
// the first report (refresh.Limits.Share) answers that one. What it gives ends it.
func repeat(s reports, r *loadstatsv3.LoadStatsRequest) (end func()) {
	over := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for s.Send(r) == nil {
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		sending.Wait()
	}
}

// Clients that lie or are broken cannot have the API asked, or nodes sent to,
// beyond the budgets, nor keep an honest node from being helped.
func TestLyingClients(t *testing.T) {
	const services = 40
	all := make([]string, services)
	for i := range all {
		all[i] = clusterOf(i)
	}
	// The budgets of package refresh: a burst, and so many a second.
	oneNode := func(d time.Duration) int { return 20 + 2*int(d.Seconds()+1) }
	keep := func(r *reported, s *reports, conn *grpc.ClientConn, node string) reports {
		if *s == nil {
			*s = r.open(conn, node)
		}
		return *s
	}
	for name, tt := range map[string]struct {
		lie   func(r *reported) func(conn *grpc.ClientConn, turn int)
		reads func(time.Duration) int
	}{
		"clusters that do not exist": {
			lie: func(r *reported) func(*grpc.ClientConn, int) {
				return func(conn *grpc.ClientConn, turn int) {
					invented := make([]string, 2000)
					for i := range invented {
						invented[i] = fmt.Sprintf("no-%d-%d", turn, i)
					}
					if s := r.open(conn, "liar"); s != nil {
						_ = s.Send(failing(invented...))
						_ = s.CloseSend()
					}
				}
			},
			reads: func(time.Duration) int { return 0 },
		},
		"every stream another node": {
			lie: func(r *reported) func(*grpc.ClientConn, int) {
				return func(conn *grpc.ClientConn, turn int) {
					if s := r.open(conn, fmt.Sprintf("liar-%d", turn)); s != nil {
						_ = s.Send(failing(all...))
						_ = s.CloseSend()
					}
				}
			},
			reads: oneNode,
		},
		"one stream, as fast as it goes": {
			lie: func(r *reported) func(*grpc.ClientConn, int) {
				streams := make([]reports, 4)
				return func(conn *grpc.ClientConn, turn int) {
					if s := keep(r, &streams[turn%4], conn, "liar"); s != nil {
						_ = s.Send(failing(all...))
					}
				}
			},
			reads: oneNode,
		},
		"a report that is too large": {
			lie: func(r *reported) func(*grpc.ClientConn, int) {
				huge := failing(clusterOf(0))
				huge.ClusterStats[0].ClusterServiceName = strings.Repeat("x", 5<<20)
				return func(conn *grpc.ClientConn, _ int) {
					if s := r.open(conn, "liar"); s != nil {
						_ = s.Send(huge)
						_, _ = s.Recv()
					}
				}
			},
			reads: func(time.Duration) int { return 0 },
		},
		"in the name of a node that never acknowledges": {
			lie: func(r *reported) func(*grpc.ClientConn, int) {
				return func(conn *grpc.ClientConn, _ int) {
					if s := r.open(conn, "deaf"); s != nil {
						_ = s.Send(failing(all...))
						_ = s.CloseSend()
					}
				}
			},
			reads: oneNode,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startReported(t, services)
			deaf := xdstest.Open(t, r.dial(), xdstest.Delta, &corev3.Node{Id: "deaf"})
			deaf.Subscribe(mesh.TypeEndpoint, all...)
			deaf.Expect()
			honest := xdstest.Open(t, r.dial(), xdstest.Delta, &corev3.Node{Id: "honest"})
			honest.Subscribe(mesh.TypeEndpoint, clusterOf(0))
			honest.Ack(honest.Expect())

			took := r.lie(tt.lie(r))
			if n, most := r.proxy.Count(reads), tt.reads(took); n > most {
				t.Errorf("the API was read %d times in %v, want at most %d", n, took, most)
			}
			sent := r.sentTo("deaf")
			if most := 1 + oneNode(took); sent > most {
				t.Errorf("the node that never acknowledges was sent %d responses in %v, want at most %d", sent, took, most)
			}
			if n := r.sentTo("honest"); n != 1 {
				t.Errorf("the honest node was sent %d responses, want the first one only", n)
			}
			t.Logf("%v: %d reads, %d sent again, %v reports without room", took, r.proxy.Count(reads), sent,
				r.control.Metric(t, `freshmesh_refresh_dropped_total{reason="overflow"}`))

			// The honest node is helped all the same: the store is behind, and it says so.
			r.api.Set(func(f *kubetest.Faults) { f.Deaf["endpointslices"] = true })
			r.api.Put(kubetest.Slice("s0-1", "s0", "10.0.1.1:8080"))
			s := r.open(r.dial(), "honest")
			if s == nil {
				t.Fatal("the honest node cannot report")
			}
			before := r.control.Metric(t, storeBehind)
			defer repeat(s, failing(clusterOf(0)))()
			if got := honest.Expect().String(); !strings.Contains(got, clusterOf(0)) {
				t.Errorf("the honest node was sent %s", got)
			}
			testwait.Within(t, 5*time.Second, "store-behind", func() bool { return r.control.Metric(t, storeBehind) > before })
		})
	}
}
