package mesh

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/admin/audit"
	"github.com/freshmesh/freshmesh/pkg/auditlog"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const echoCluster = "echo.default.svc.cluster.local:8080"

// explain runs the command and gives its exit code and output.
func explain(t *testing.T, control *meshtest.Control, args ...string) (int, string) {
	t.Helper()
	var out strings.Builder
	code := audit.ExplainMain(t.Context(), append([]string{"--server", "http://" + control.Admin}, args...), &out, io.Discard)
	return code, out.String()
}

// story is explain as JSON, of one server.
func story(t *testing.T, control *meshtest.Control, args ...string) history.Story {
	t.Helper()
	_, out := explain(t, control, append(args, "-o", "json")...)
	var all []history.Story
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	return all[0]
}

// masks are what differs between runs, and what stands for it.
var masks = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`), "TIME"},
	{regexp.MustCompile(`\+[\d.]+m?s`), "PASSED"},
	{regexp.MustCompile(`\b[0-9a-f]{16}\b`), "VERSION"},
	{regexp.MustCompile(`server [A-Z2-7]{8},`), "server NAME,"},
	{regexp.MustCompile(`generation \d+`), "generation N"}, // the listing may come in several parts
	{regexp.MustCompile(`\b(\d+s ago|now)\b`), "AGE"},
	{regexp.MustCompile(` +`), " "},
}

// masked takes out of a story what differs between runs.
func masked(s string) string {
	for _, m := range masks {
		s = m.what.ReplaceAllString(s, m.by)
	}
	return strings.TrimSpace(s)
}

// sliceAt is a slice that tells when the change of a Pod led to it.
func sliceAt(name, address string, trigger time.Time) *discoveryv1.EndpointSlice {
	s := kubetest.Slice(name, "echo", address)
	s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: trigger.Format(time.RFC3339Nano)}
	return s
}

// explained is a control plane over an API server, with an audit log, and a raw client.
type explained struct {
	t       *testing.T
	api     *kubetest.Server
	control *meshtest.Control
	conn    *grpc.ClientConn
	log     string
	stop    func()
}

func newExplained(t *testing.T, edits ...func(*controlplane.Config)) *explained {
	t.Helper()
	e := &explained{t: t, api: kubetest.NewServer(t), log: filepath.Join(t.TempDir(), "audit.jsonl")}
	e.api.Put(kubetest.Service("echo", 8080), kubetest.Slice("echo-1", "echo", "10.0.0.1:8080"))
	ctx, cancel := context.WithCancel(t.Context())
	control, done := meshtest.RunControl(ctx, t, kubernetes(t, e.api, 0), meshtest.Policy, "127.0.0.1:0", func(c *controlplane.Config) {
		c.AuditLog = auditlog.New(auditlog.Config{Path: e.log, Registerer: c.Registry})
		for _, edit := range edits {
			edit(c)
		}
	})
	var once sync.Once
	e.control, e.stop = control, func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("control plane: %v", err)
			}
		})
	}
	t.Cleanup(e.stop)
	testwait.Within(t, 10*time.Second, "synced", func() bool { return control.Audit(t).Server.Synced })
	conn, err := grpc.NewClient(control.XDS, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	e.conn = conn
	return e
}

// node opens a stream that holds echo.
func (e *explained) node(p xdstest.Protocol, id string) *xdstest.Stream {
	e.t.Helper()
	node := xdstest.Open(e.t, e.conn, p, &corev3.Node{Id: id, UserAgentName: "test"})
	for _, kind := range []mesh.Type{mesh.TypeCluster, mesh.TypeEndpoint} {
		node.Subscribe(kind, echoCluster)
		node.Ack(node.Expect())
	}
	return node
}

// told waits for a verdict.
func (e *explained) told(want history.Verdict, args ...string) history.Story {
	e.t.Helper()
	var s history.Story
	testwait.Within(e.t, 10*time.Second, "verdict "+string(want), func() bool {
		s = story(e.t, e.control, args...)
		return s.Verdict == want
	})
	return s
}

// An endpoint comes, another changes, and the first goes: the whole story is
// there, from the objects' own times to the acknowledgement; on disk, too.
func TestExplain(t *testing.T) {
	e := newExplained(t)
	node := e.node(xdstest.Delta, "proxy-1")
	e.told(history.Current, "--node", "proxy-1", "--cluster", echoCluster)
	code, out := explain(t, e.control, "--node", "proxy-1", "--cluster", "echo", "--endpoint", "10.0.0.1:8080")
	if code != audit.ExitTold || !strings.Contains(out, "is HEALTHY, unchanged since before this server's start") {
		t.Errorf("before any change: %d\n%s", code, out)
	}

	e.api.Put(sliceAt("echo-2", "10.0.0.2:8080", time.Now().Add(-1500*time.Millisecond)))
	node.Ack(node.Expect())
	managed := kubetest.Slice("echo-1", "echo", "10.0.0.3:8080")
	managed.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update", APIVersion: "v1", Time: &metav1.Time{Time: time.Now().Add(-2 * time.Second)}}}
	e.api.Put(managed)
	node.Ack(node.Expect())
	e.api.Remove(kubetest.Slice("echo-2", "echo", "10.0.0.2:8080"))
	node.Ack(node.Expect())
	testwait.Within(t, 10*time.Second, "acknowledged", func() bool {
		changes := story(t, e.control, "--node", "proxy-1", "--cluster", echoCluster).Changes
		sent := changes[len(changes)-1].Sent
		return len(changes) == 3 && sent != nil && sent.AckedAt != nil
	})

	code, out = explain(t, e.control, "--node", "proxy-1", "--cluster", "echo.default", "--endpoint", "10.0.0.2:8080")
	t.Log("\n" + out)
	const want = `node proxy-1 (test), fresh; connected AGE, last answer AGE
cluster echo.default.svc.cluster.local:8080
endpoint 10.0.0.2:8080, AGE absent
verdict current

10.0.0.2:8080 was removed at TIME by EndpointSlice default/echo-2 at resource version 105. proxy-1 knows: it holds the current form, and acknowledged generation N at TIME.

TIME changed EndpointSlice default/echo-2, resource version 103 (by its last-change-trigger-time)
TIME PASSED received
TIME PASSED published generation N, eds changed, version VERSION: 10.0.0.2:8080 added, HEALTHY
TIME PASSED sent to proxy-1, made from generation N
TIME PASSED acknowledged

TIME received EndpointSlice default/echo-2, resource version 105 (it does not tell when it changed)
TIME PASSED published generation N, eds changed, version VERSION: 10.0.0.2:8080 removed, was HEALTHY
TIME PASSED sent to proxy-1, made from generation N
TIME PASSED acknowledged

HOLDS STAGE ACKNOWLEDGED CURRENT STREAM ENDPOINT ACKNOWLEDGED ENDPOINT CURRENT
cds held VERSION VERSION opened AGE - -
eds held VERSION VERSION opened AGE absent absent

server NAME, generation N, at TIME; its log begins after generation N at TIME, since this server's start`
	if got := masked(out); code != audit.ExitTold || got != want {
		t.Errorf("exit code %d (-want +got):\n%s", code, cmp.Diff(want, got))
	}
	for series, n := range map[string]float64{
		`source",origin="trigger`: 1, `source",origin="managed-fields`: 1, `translate",origin="`: 3, `send",origin="`: 3, `ack",origin="`: 3,
		`total",origin="trigger`: 1, `total",origin="managed-fields`: 1, `total",origin="receipt`: 1,
	} {
		// The labels stand in the order of their names.
		stage, origin, _ := strings.Cut(series, `",origin="`)
		if got := e.control.Metric(t, `freshmesh_propagation_seconds_count{origin="`+origin+`",stage="`+stage+`"}`); got != n {
			t.Errorf("%s: observed %v times, want %v", series, got, n)
		}
	}
	if sum := e.control.Metric(t, `freshmesh_propagation_seconds_sum{origin="trigger",stage="total"}`); sum < 1.5 {
		t.Errorf("the change with a trigger time took %v s, want 1.5 and more", sum)
	}
	e.stop()
	e.onDisk()
}

// onDisk: the audit log has it all, in order, up to the end of the stream.
func (e *explained) onDisk() {
	e.t.Helper()
	text, err := os.ReadFile(e.log)
	if err != nil {
		e.t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		var l struct {
			Time                            time.Time
			Server, Event, Node, Type, What string
			Object, ResourceVersion         string
			Resources, Endpoints            []map[string]string
			Generation                      int
			ReceivedAt                      time.Time
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Time.IsZero() || l.Server == "" {
			e.t.Fatalf("line %q: %v", line, err)
		}
		what := []string{l.Event, l.Node, l.Type, l.What, l.Object, l.ResourceVersion}
		for _, r := range l.Resources {
			what = append(what, r["name"])
		}
		for _, p := range l.Endpoints {
			what = append(what, p["endpoint"]+":"+p["was"]+">"+p["now"])
		}
		if l.Event == "published" && l.ReceivedAt.IsZero() {
			e.t.Errorf("line %q does not say when the change was received", line)
		}
		if l.Type != "cds" {
			got = append(got, strings.Join(strings.Fields(strings.Join(what, " ")), " "))
		}
	}
	want := []string{
		"synced", "connected proxy-1", "sent proxy-1 eds " + echoCluster, "acked proxy-1 eds",
		"published eds changed EndpointSlice default/echo-2 103 10.0.0.2:8080:>HEALTHY", "sent proxy-1 eds " + echoCluster, "acked proxy-1 eds",
		"published eds changed EndpointSlice default/echo-1 104 10.0.0.1:8080:HEALTHY> 10.0.0.3:8080:>HEALTHY", "sent proxy-1 eds " + echoCluster, "acked proxy-1 eds",
		"published eds changed EndpointSlice default/echo-2 105 10.0.0.2:8080:HEALTHY>", "sent proxy-1 eds " + echoCluster, "acked proxy-1 eds",
		"disconnected proxy-1",
	}
	// The loop and the streams record at the same time: a publication may come after what was sent of it.
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		e.t.Errorf("the audit log (-want +got):\n%s", diff)
	}
}

// A node that is behind, that refuses, that has gone, and what is not known: each is said.
func TestExplainTrouble(t *testing.T) {
	e := newExplained(t)
	node := e.node(xdstest.SotW, "proxy-1")
	ask := []string{"--node", "proxy-1", "--cluster", "echo.default:8080", "--endpoint", "10.0.0.1:8080"}
	e.told(history.Current, ask...)

	e.api.Put(kubetest.Slice("echo-1", "echo", "10.0.0.2:8080"))
	held := node.Expect()
	s := e.told(history.Behind, ask...)
	if eds := s.Holds[1]; eds.EndpointHeld != "HEALTHY" || eds.EndpointCurrent != history.Absent || eds.Stage != "unanswered" {
		t.Errorf("behind: %+v", eds)
	}
	node.Nack(held, "bad weight")
	s = e.told(history.Rejected, ask...)
	if last := s.Changes[len(s.Changes)-1]; last.Sent == nil || last.Sent.RefusedAt == nil || last.Sent.Message != "bad weight" {
		t.Errorf("rejected: %+v", s.Changes)
	}
	if code, out := explain(t, e.control, ask...); code != audit.ExitNotCurrent || !strings.Contains(out, "proxy-1 refused the current eds: bad weight") {
		t.Errorf("%d\n%s", code, out)
	}
	node.Close()
	s = e.told(history.Disconnected, ask...)
	if last := s.Changes[len(s.Changes)-1]; last.Sent == nil || s.EndpointNow != history.Absent {
		t.Errorf("disconnected: %+v", s)
	}

	other := xdstest.Open(t, e.conn, xdstest.Delta, &corev3.Node{Id: "proxy-2"})
	other.Subscribe(mesh.TypeRoute, "none")
	other.Ack(other.Expect())
	for _, test := range []struct {
		node, cluster string
		want          history.Verdict
	}{
		{"proxy-2", "echo", history.NotSubscribed},
		{"proxy-2", "nowhere", history.ClusterUnknown},
		{"proxy-3", "echo", history.NodeUnknown},
	} {
		e.told(test.want, "--node", test.node, "--cluster", test.cluster)
		if code, out := explain(t, e.control, "--node", test.node, "--cluster", test.cluster); code != audit.ExitNotCurrent {
			t.Errorf("%s %s: exit code %d\n%s", test.node, test.cluster, code, out)
		}
	}
}

// A short name that fits several services is not guessed.
func TestExplainShortNames(t *testing.T) {
	e := newExplained(t)
	other := kubetest.Service("echo", 8080)
	other.Namespace = "prod"
	e.api.Put(other, kubetest.Service("echo-canary", 8080))
	e.node(xdstest.Delta, "proxy-1")
	var s history.Story
	testwait.Within(t, 10*time.Second, "two candidates", func() bool {
		s = story(t, e.control, "--node", "proxy-1", "--cluster", "echo")
		return len(s.Candidates) == 2
	})
	if s.Verdict != history.ClusterUnknown || !strings.Contains(s.Summary, "echo.prod.svc.cluster.local:8080") {
		t.Errorf("%+v", s)
	}
	// The ACK is on its way.
	if s := e.told(history.Current, "--node", "proxy-1", "--cluster", "echo.default:8080"); s.Cluster != echoCluster {
		t.Errorf("%+v", s)
	}
}

// What the log no longer has is said, and counted.
func TestExplainForgets(t *testing.T) {
	e := newExplained(t, func(c *controlplane.Config) { c.HistoryLimit = 4 })
	e.node(xdstest.Delta, "proxy-1")
	for _, address := range []string{"10.0.0.2:8080", "10.0.0.3:8080", "10.0.0.4:8080"} {
		before := e.control.Audit(t).Server.Generation
		e.api.Put(kubetest.Slice("echo-1", "echo", address))
		testwait.Within(t, 10*time.Second, "published", func() bool { return e.control.Audit(t).Server.Generation > before })
	}
	s := story(t, e.control, "--node", "proxy-1", "--cluster", "echo")
	if len(s.Changes) != 1 || s.Server.LogComplete || s.Server.LogAfter != s.Server.Generation-1 {
		t.Errorf("the log of 4 lines: %+v, %+v", s.Server, s.Changes)
	}
	if n := e.control.Metric(t, "freshmesh_history_dropped_total"); n != 2 {
		t.Errorf("%v changes have gone, want 2", n)
	}
	_, out := explain(t, e.control, "--node", "proxy-1", "--cluster", "echo", "--endpoint", "10.0.0.1:8080")
	if !strings.Contains(out, "it was never there, or that is older than the log") || !strings.Contains(out, "older changes are not kept") {
		t.Errorf("got\n%s", out)
	}
}
