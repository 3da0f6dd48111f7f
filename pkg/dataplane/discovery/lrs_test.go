package discovery

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// received gives the reports since the last call, without the first message and the empty ones.
func (s *fakeServer) received() []*loadv3.LoadStatsRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*loadv3.LoadStatsRequest
	for _, r := range s.reports {
		if len(r.GetClusterStats()) > 0 {
			list = append(list, r)
		}
	}
	s.reports = nil
	return list
}

func TestLoadReport(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.server.orders = &loadv3.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(5 * time.Second)}
		w.server.service("a", "1", "10.0.0.1", "10.0.0.2")
		w.run()
		w.must("a", "10.0.0.1", "10.0.0.2")
		node := w.server.reports[0].GetNode()
		if node.GetId() != "n" || node.GetUserAgentName() != mesh.DataplaneUserAgent || node.GetLocality().GetZone() != "z" ||
			node.GetMetadata().GetFields()["namespace"].GetStringValue() != "ns" ||
			node.GetMetadata().GetFields()["listeners"].GetStringValue() != "api" {
			t.Errorf("node %v", node)
		}
		w.Count("a", key("10.0.0.1"), Load{Issued: 3, Succeeded: 2, Failed: 1})
		identified := key("10.0.0.2")
		identified.Identity = "spiffe://x"
		w.Count("a", key("10.0.0.2"), Load{ConnectFailed: 1})
		w.Count("a", key("10.0.0.2"), Load{ConnectFailed: 1})
		w.Count("b", identified, Load{Issued: 1, Succeeded: 1})
		pass(5 * time.Second)
		var want loadv3.LoadStatsRequest
		if err := prototext.Unmarshal([]byte(`
			cluster_stats {
			  cluster_name: "a" cluster_service_name: "a"
			  upstream_locality_stats {
			    locality { region: "r" zone: "z" }
			    total_issued_requests: 3 total_successful_requests: 2 total_error_requests: 1 total_fail_connections: 2
			    upstream_endpoint_stats {
			      address { socket_address { address: "10.0.0.1" port_value: 80 } }
			      metadata { fields { key: "connect_failures" value { number_value: 0 } } }
			      total_issued_requests: 3 total_successful_requests: 2 total_error_requests: 1
			    }
			    upstream_endpoint_stats {
			      address { socket_address { address: "10.0.0.2" port_value: 80 } }
			      metadata { fields { key: "connect_failures" value { number_value: 2 } } }
			    }
			  }
			}
			cluster_stats {
			  cluster_name: "b" cluster_service_name: "b"
			  upstream_locality_stats {
			    locality {}
			    total_issued_requests: 1 total_successful_requests: 1
			    upstream_endpoint_stats {
			      address { socket_address { address: "10.0.0.2" port_value: 80 } }
			      metadata {
			        fields { key: "connect_failures" value { number_value: 0 } }
			        fields { key: "identity" value { string_value: "spiffe://x" } }
			      }
			      total_issued_requests: 1 total_successful_requests: 1
			    }
			  }
			}`), &want); err != nil {
			t.Fatal(err)
		}
		got := w.server.received()
		if diff := cmp.Diff([]*loadv3.LoadStatsRequest{&want}, got, protocmp.Transform(),
			protocmp.IgnoreFields(&endpointv3.ClusterStats{}, "load_report_interval")); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		pass(time.Minute)
		if got := w.server.received(); len(got) != 0 {
			t.Errorf("counted twice: %v", got)
		}
	})
}

func TestOnlyAskedClustersAreReported(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.server.orders = &loadv3.LoadStatsResponse{Clusters: []string{"b"}, LoadReportingInterval: durationpb.New(time.Second)}
		w.run()
		w.Count("a", key("10.0.0.1"), Load{Issued: 1})
		w.Count("b", key("10.0.0.1"), Load{Issued: 1})
		pass(2 * time.Second)
		got := w.server.received()
		if len(got) != 1 || len(got[0].GetClusterStats()) != 1 || got[0].GetClusterStats()[0].GetClusterName() != "b" {
			t.Errorf("reports %v", got)
		}
	})
}

func TestDistrustReportsAtOnce(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		bubble(t, func(c *Config) { c.DisableRefresh = disabled }, func(w *world) {
			w.server.orders = &loadv3.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(time.Minute)}
			w.server.service("a", "1", "10.0.0.1")
			w.run()
			w.must("a", "10.0.0.1")
			for range 5 {
				w.Count("a", key("10.0.0.1"), Load{ConnectFailed: 1})
				w.Distrust("a")
				pass(10 * time.Millisecond)
			}
			var failures []uint64
			for _, r := range w.server.received() {
				failures = append(failures, r.GetClusterStats()[0].GetUpstreamLocalityStats()[0].GetTotalFailConnections())
			}
			want := []uint64{1} // the first at once, the others together a second later
			if disabled {
				want = nil
			}
			if diff := cmp.Diff(want, failures); diff != "" {
				t.Errorf("disabled %v (-want +got)\n%s", disabled, diff)
			}
			pass(1250 * time.Millisecond)
			later := w.server.received()
			if disabled != (len(later) == 0) || !disabled && (len(later) != 1 ||
				later[0].GetClusterStats()[0].GetUpstreamLocalityStats()[0].GetTotalFailConnections() != 4) {
				t.Errorf("disabled %v, later %v", disabled, later)
			}
		})
	}
}

func TestLoadReportsFailAlone(t *testing.T) {
	bubble(t, nil, func(w *world) { // the server has no such service
		w.server.service("a", "1", "10.0.0.1")
		w.run()
		w.must("a", "10.0.0.1")
		w.Count("a", key("10.0.0.1"), Load{Issued: 7})
		synctest.Wait()
		w.server.log()
		w.Distrust("a")
		pass(time.Minute)
		for _, l := range w.server.log() {
			if l == "stream" {
				t.Error("the ADS stream was given up")
			}
		}
		// What was counted meanwhile is reported once somebody listens.
		w.server.change(func() {
			w.server.orders = &loadv3.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(time.Second)}
		})
		pass(2 * time.Minute)
		got := w.server.received()
		if len(got) != 1 || got[0].GetClusterStats()[0].GetUpstreamLocalityStats()[0].GetTotalIssuedRequests() != 7 {
			t.Errorf("reports %v", got)
		}
	})
}

// brokenStream is a load report stream on which nothing can be sent.
type brokenStream struct{ grpc.ClientStream }

func (brokenStream) Send(*loadv3.LoadStatsRequest) error      { return errors.New("broken") }
func (brokenStream) Recv() (*loadv3.LoadStatsResponse, error) { return nil, errors.New("broken") }

func TestUnsentReportIsGivenBack(t *testing.T) {
	c, err := New(Config{NodeID: "n", Servers: []string{"x"}, Applier: newApplied()})
	if err != nil {
		t.Fatal(err)
	}
	l := Load{Issued: 4, Succeeded: 2, Failed: 2, ConnectFailed: 1}
	c.Count("a", key("10.0.0.1"), l)
	if c.sendReport(brokenStream{}, &loadv3.LoadStatsResponse{}, time.Second) == nil {
		t.Fatal("no error")
	}
	got := c.loads.take(time.Now())
	if len(got) != 1 || got[0].Load != l {
		t.Errorf("counted %+v", got)
	}
}

// Nothing is lost between many counters and a reporter, and quiet counters go.
func TestCounting(t *testing.T) {
	l := newLoads()
	var counters, reporter sync.WaitGroup
	var sum uint64
	stop := make(chan struct{})
	reporter.Go(func() {
		for {
			for _, d := range l.take(epoch) {
				sum += d.Issued
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	names := []string{"a", "b", "c"}
	for i := range 4 {
		counters.Go(func() {
			for n := range 3000 {
				l.count(names[n%3], key([]string{"10.0.0.1", "10.0.0.2"}[(n+i)%2]), Load{Issued: 1})
			}
		})
	}
	counters.Wait()
	close(stop)
	reporter.Wait()
	for _, d := range l.take(epoch) {
		sum += d.Issued
	}
	l.take(epoch.Add(quietTime))
	if len(l.retired) == 0 {
		t.Error("nothing was retired")
	}
	late := l.retired[0].counter
	late.add(Load{Issued: 1})
	if got := l.take(epoch.Add(quietTime)); len(got) != 1 {
		t.Errorf("an addition to a retired counter was lost: %v", got)
	}
	l.take(epoch.Add(2 * quietTime))
	if len(l.retired) != 0 {
		t.Errorf("%d counters are retired for ever", len(l.retired))
	}
	if sum != 4*3000 {
		t.Errorf("reported %d of %d", sum, 4*3000)
	}
	if n := len(*l.clusters.Load()); n != 0 {
		t.Errorf("%d clusters are still counted", n)
	}
}

func BenchmarkCount(b *testing.B) {
	l := newLoads()
	k := mesh.EndpointKey{Address: addrPort("10.0.0.1:80")}
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			l.count("a", k, Load{Issued: 1, Succeeded: 1})
		}
	})
}
