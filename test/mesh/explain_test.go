package mesh

import (
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/freshmesh/freshmesh/internal/kubetest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin/audit"
	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
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

var (
	times    = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)
	passed   = regexp.MustCompile(`\+[\d.]+m?s +`)
	versions = regexp.MustCompile(`\b[0-9a-f]{16}\b`)
	servers  = regexp.MustCompile(`server [A-Z2-7]{8},`)
	ages     = regexp.MustCompile(`(\d+s ago|now)\b`)
	spaces   = regexp.MustCompile(`[ -]{3,}`)
)

// masked takes out of a story what differs between runs.
func masked(s string) string {
	for _, m := range []struct {
		what *regexp.Regexp
		by   string
	}{{times, "TIME"}, {passed, "+PASSED "}, {versions, "VERSION"}, {servers, "server NAME,"}, {ages, "AGE"}, {spaces, "  "}} {
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

// A pod is replaced, and a third event removes its successor: the whole story is
// there, from the objects' own times to the acknowledgement.
func TestExplain(t *testing.T) {
	api := kubetest.NewServer(t)
	api.Put(kubetest.Service("echo", 8080), kubetest.Slice("echo-1", "echo", "10.0.0.1:8080"))
	control := meshtest.StartControl(t, kubernetes(t, api), meshtest.Policy)
	meshtest.Until(t, 10*time.Second, "synced", func() bool { return control.Audit(t).Server.Synced })
	conn, err := grpc.NewClient(control.XDS, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	node := xdstest.Open(t, conn, xdstest.Delta, &corev3.Node{Id: "proxy-1", UserAgentName: "test"})
	node.Subscribe(mesh.TypeCluster, echoCluster)
	node.Ack(node.Expect())
	node.Subscribe(mesh.TypeEndpoint, echoCluster)
	node.Ack(node.Expect())

	code, out := explain(t, control, "--node", "proxy-1", "--cluster", "echo", "--endpoint", "10.0.0.1:8080")
	if code != audit.ExitTold || !strings.Contains(out, "is HEALTHY, unchanged since before this server's start") {
		t.Errorf("before any change: %d\n%s", code, out)
	}

	api.Put(sliceAt("echo-2", "10.0.0.2:8080", time.Now().Add(-1500*time.Millisecond)))
	node.Ack(node.Expect())
	managed := kubetest.Slice("echo-1", "echo", "10.0.0.3:8080")
	managed.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update", APIVersion: "v1", Time: &metav1.Time{Time: time.Now().Add(-2 * time.Second)}}}
	api.Put(managed)
	node.Ack(node.Expect())
	api.Remove(kubetest.Slice("echo-2", "echo", "10.0.0.2:8080"))
	node.Ack(node.Expect())
	last := func() *history.Sent {
		s := story(t, control, "--node", "proxy-1", "--cluster", echoCluster)
		return s.Changes[len(s.Changes)-1].Sent
	}
	meshtest.Until(t, 10*time.Second, "acknowledged", func() bool { sent := last(); return sent != nil && sent.AckedAt != nil })

	code, out = explain(t, control, "--node", "proxy-1", "--cluster", "echo.default", "--endpoint", "10.0.0.2:8080")
	t.Log("\n" + out)
	const want = `node  proxy-1 (test), fresh; connected AGE, last answer AGE
cluster  echo.default.svc.cluster.local:8080
endpoint  10.0.0.2:8080, AGE absent
verdict  current

10.0.0.2:8080 was removed at TIME by EndpointSlice default/echo-2 at resource version 105. proxy-1 knows: it holds the current form, and acknowledged generation 4 at TIME.`
	if got := masked(out); code != audit.ExitTold || !strings.HasPrefix(got, want) {
		t.Errorf("exit code %d, got\n%s\nwant\n%s", code, got, want)
	}
}

var _ = ack.Fresh
