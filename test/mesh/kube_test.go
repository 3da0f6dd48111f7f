package mesh

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin"
	"github.com/freshmesh/freshmesh/pkg/admin/audit"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
	"github.com/freshmesh/freshmesh/pkg/kube"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const sourceLag = "freshmesh_source_lag_seconds"

// The API server is down, up, down again, and up again, and the control plane
// runs through it all: it tells the truth, and serves what it knows.
func TestKubernetesDownUpDownUp(t *testing.T) {
	a, b := meshtest.StartBackend(t, "a"), meshtest.StartBackend(t, "b")
	api := kubetest.NewServer(t)
	api.Put(kubetest.Service("echo", 8080), kubetest.Slice("echo-1", "echo", a.Address))
	api.Stop()
	control := meshtest.StartControl(t, kubernetes(t, api, 6*time.Second), meshtest.Policy)
	proxy := meshtest.StartProxy(t, control.XDS, nil)

	refusesBeforeSync(t, control, api.Address)

	api.Start()
	client := &meshtest.Client{Address: proxy.Outbound}
	defer client.Close()
	if !answeredWithin(client, "a", 20*time.Second) {
		t.Fatal("no request was answered within 20 s of the API server's start")
	}
	reachedAndFresh(t, control)

	load := meshtest.StartLoad(t, proxy.Outbound, authority, 100)
	testwait.Within(t, 5*time.Second, "answered under load", func() bool { return !load.Last("a").IsZero() })
	api.Stop()
	servesWhatItKnows(t, control, api.Address)
	stopped := time.Now()
	testwait.Within(t, 5*time.Second, "answered while the source is away", func() bool { return load.Last("a").After(stopped) })

	api.Put(kubetest.Slice("echo-1", "echo", b.Address))
	api.Start()
	testwait.Within(t, 20*time.Second, "moved to b", func() bool {
		return !load.Last("b").IsZero() && time.Since(load.Last("a")) > 100*time.Millisecond
	})
	reachedAndFresh(t, control)
	load.Stop()
	if sent, _, failures := load.Result(); len(failures) > 0 {
		t.Errorf("%d of %d requests failed: %v", len(failures), sent, failures)
	}
}

// kubernetes makes a source over an API server, from a kubeconfig file, that
// finds a watch that went deaf within the interval.
func kubernetes(t *testing.T, api *kubetest.Server, interval time.Duration) mesh.Source {
	t.Helper()
	source, err := kube.New(kube.Config{Kubeconfig: api.Kubeconfig(), CheckInterval: interval})
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// refusesBeforeSync: the source was never reached. The control plane says so
// and why, wherever it is asked, and serves nothing.
func refusesBeforeSync(t *testing.T, control *meshtest.Control, address string) {
	t.Helper()
	reason := "connection refused to " + address
	testwait.Within(t, 5*time.Second, "unready with the reason", func() bool {
		code, r := readiness(t, control)
		return code == http.StatusServiceUnavailable && !r.Ready && !r.Synced && !r.Connected && strings.Contains(r.Reason, reason)
	})
	conn, err := grpc.NewClient(control.XDS, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	request := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "early"}, TypeUrl: string(mesh.TypeCluster)}
	if err := stream.Send(request); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	if s := status.Convert(err); s.Code() != codes.Unavailable || !strings.Contains(s.Message(), reason) {
		t.Errorf("the stream ended with %v, want UNAVAILABLE with %q", err, reason)
	}
	// With --allow-empty, so that not being synced is all that can fail it.
	var out strings.Builder
	code := audit.Main(t.Context(), []string{"--server", "http://" + control.Admin, "--allow-empty"}, &out, io.Discard)
	if code != audit.ExitNotFresh {
		t.Errorf("audit gave %d, want %d; it wrote:\n%s", code, audit.ExitNotFresh, out.String())
	}
}

// reachedAndFresh: the source is synced and reached, and the proxy holds what it should.
func reachedAndFresh(t *testing.T, control *meshtest.Control) {
	t.Helper()
	testwait.Within(t, 10*time.Second, "ready and reached", func() bool {
		code, r := readiness(t, control)
		return code == http.StatusOK && r.Ready && r.Synced && r.Connected && r.LagSeconds == 0 && r.Reason == ""
	})
	if lag := control.Metric(t, sourceLag); lag != 0 {
		t.Errorf("%s is %v, want 0", sourceLag, lag)
	}
	testwait.Within(t, 10*time.Second, "fresh", func() bool {
		a := control.Audit(t)
		return a.Server.Synced && a.Server.SourceLagSeconds == 0 && a.Server.SourceReason == "" &&
			len(a.Nodes) == 1 && a.Nodes[0].State == ack.Fresh && a.Nodes[0].Active
	})
	if code := audit.Main(t.Context(), []string{"--server", "http://" + control.Admin}, io.Discard, io.Discard); code != audit.ExitFresh {
		t.Errorf("audit gave %d, want %d", code, audit.ExitFresh)
	}
}

// servesWhatItKnows: the source was reached once and is away. The control plane
// stays ready, and says since when it knows nothing new, and why.
func servesWhatItKnows(t *testing.T, control *meshtest.Control, address string) {
	t.Helper()
	reason := "connection refused to " + address
	var first admin.Readiness
	testwait.Within(t, 10*time.Second, "disconnected with the reason", func() bool {
		var code int
		code, first = readiness(t, control)
		if code != http.StatusOK || !first.Ready || !first.Synced {
			t.Fatalf("readyz: status %d, %+v: what is known must stay served", code, first)
		}
		return !first.Connected && strings.Contains(first.Reason, reason) && first.LagSeconds > 0
	})
	testwait.Within(t, 5*time.Second, "lagging more and more", func() bool {
		_, r := readiness(t, control)
		return r.LagSeconds >= first.LagSeconds+1
	})
	if lag := control.Metric(t, sourceLag); lag < first.LagSeconds+1 {
		t.Errorf("%s is %v, want more than %v", sourceLag, lag, first.LagSeconds+1)
	}
	a := control.Audit(t).Server
	if !a.Synced || a.SourceLagSeconds <= first.LagSeconds || !strings.Contains(a.SourceReason, reason) {
		t.Errorf("audit: %+v, want a lag and the reason %q", a, reason)
	}
}

// readiness asks for /readyz.
func readiness(t *testing.T, control *meshtest.Control) (code int, r admin.Readiness) {
	t.Helper()
	code, body := meshtest.Ask(t, control.Admin, "/readyz")
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("readyz: %v: %s", err, body)
	}
	return code, r
}

// The watch of the endpoint slices goes deaf: it stays open and delivers
// nothing. The endpoint is replaced, and the old one dies. The connect failure
// must have the control plane read the service live within 5 s.
func TestDeafWatchIsHealedByTheConnectFailure(t *testing.T) {
	for name, replace := range map[string]func(*kubetest.Server, string){
		"slice changed": func(api *kubetest.Server, address string) {
			api.Put(kubetest.Slice("echo-1", "echo", address))
		},
		"slice replaced": func(api *kubetest.Server, address string) {
			api.Remove(kubetest.Slice("echo-1", "echo", "127.0.0.1:1"))
			api.Put(kubetest.Slice("echo-2", "echo", address))
		},
	} {
		t.Run(name, func(t *testing.T) {
			control, old, healed := deafWatch(t, replace, false)
			if !healed {
				t.Fatal("the new endpoint was not used within 5 s")
			}
			testwait.Within(t, 5*time.Second, "in the log and the metrics with the verdict store-behind", func() bool {
				return control.Log.Has("failures reported", "verdict=store-behind", "node=proxy-1", old) &&
					control.Metric(t, storeBehind) >= 1
			})
		})
	}
}

// The same without the way back: it must fail, or the test above proves nothing.
func TestDeafWatchStaysWithoutTheWayBack(t *testing.T) {
	_, _, healed := deafWatch(t, func(api *kubetest.Server, address string) {
		api.Put(kubetest.Slice("echo-1", "echo", address))
	}, true)
	if healed {
		t.Fatal("healed although the refresh path is off: the test does not bite")
	}
}

// deafWatch tells whether the new endpoint was used within 5 s of the old one's death.
func deafWatch(t *testing.T, replace func(*kubetest.Server, string), disableRefresh bool) (control *meshtest.Control, old string, healed bool) {
	t.Helper()
	before, after := meshtest.StartBackend(t, "old"), meshtest.StartBackend(t, "new")
	api := kubetest.NewServer(t)
	api.Put(kubetest.Service("echo", 8080), kubetest.Slice("echo-1", "echo", before.Address))
	control = meshtest.StartControl(t, kubernetes(t, api, time.Hour), patient, rareReports)
	proxy := meshtest.StartProxy(t, control.XDS, func(c *dataplane.Config) {
		patientProxy(c)
		c.DisableRefresh = disableRefresh
	})
	client := &meshtest.Client{Address: proxy.Outbound}
	t.Cleanup(client.Close)
	testwait.Within(t, 5*time.Second, "answered", func() bool { return answers(client) == "old" })

	api.Set(func(f *kubetest.Faults) { f.Deaf["endpointslices"] = true })
	replace(api, after.Address)
	before.Kill()
	healed = answeredWithin(client, "new", 5*time.Second)
	return control, before.Address, healed
}
