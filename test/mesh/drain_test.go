package mesh

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin/drains"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
	"github.com/freshmesh/freshmesh/pkg/dataplane/barrier"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// drainedPods writes the service echo with the pods a and b; a may be terminating.
func drainedPods(t *testing.T, dir, a, b string, terminating bool) {
	t.Helper()
	var text strings.Builder
	text.WriteString("apiVersion: v1\nkind: Service\nmetadata: {name: echo}\nspec: {ports: [{name: http, port: 8080, appProtocol: http}]}\n")
	for pod, address := range map[string]string{"a": a, "b": b} {
		ip, port, _ := strings.Cut(address, ":")
		leaving := terminating && pod == "a"
		fmt.Fprintf(&text, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: echo-%s, labels: {kubernetes.io/service-name: echo}}
addressType: IPv4
ports: [{name: http, port: %s}]
endpoints: [{addresses: [%q], conditions: {ready: %v, serving: true, terminating: %v}, targetRef: {kind: Pod, namespace: default, name: %s}}]
`, pod, port, ip, !leaving, leaving, pod)
	}
	path := filepath.Join(dir, "echo.yaml")
	if err := os.WriteFile(path+".new", []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func drainCommand(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	code := drains.Main(t.Context(), args, &out, &out)
	return code, out.String()
}

// TestDrainEndToEnd: a pod's own proxy asks both control planes whether anybody
// uses the pod; so does the command. The proxy that uses it is with one of
// them. Then that one goes, and the proxy moves to the other without being sent anything again.
func TestDrainEndToEnd(t *testing.T) {
	t.Parallel() // most of it is the wait for a server that can know its nodes
	a, b := meshtest.StartBackend(t, "a"), meshtest.StartBackend(t, "b")
	manifests := meshtest.NewManifests(t)
	drainedPods(t, manifests.Dir, a.Address, b.Address, false)
	ctx, stop := context.WithCancel(context.Background())
	one, oneDone := meshtest.RunControl(ctx, t, manifests.Source(), meshtest.Policy, "127.0.0.1:0")
	stopped := false
	t.Cleanup(func() {
		if stop(); !stopped {
			<-oneDone
		}
	})
	begin := time.Now()
	two := meshtest.StartControl(t, manifests.Source(), meshtest.Policy)
	for _, c := range []*meshtest.Control{one, two} {
		testwait.Within(t, 10*time.Second, "synced", func() bool { return c.Audit(t).Server.Synced })
	}
	both := []string{one.XDS, two.XDS}
	user := meshtest.StartProxy(t, "", func(c *dataplane.Config) { c.NodeID, c.XDSAddresses = "user", both })
	own := meshtest.StartProxy(t, "", func(c *dataplane.Config) {
		c.NodeID, c.XDSAddresses, c.HealthAddress = "a.default", []string{two.XDS, one.XDS}, "127.0.0.1:0"
	})
	client := &meshtest.Client{Address: user.Outbound}
	defer client.Close()
	if !answeredWithin(client, "a", 20*time.Second) {
		t.Fatal("no request was answered")
	}

	status, body := meshtest.Ask(t, own.Health, "/drain?timeout=0s")
	if status != http.StatusGatewayTimeout || !strings.Contains(body, `"starting"`) || !strings.Contains(body, `"listed"`) {
		t.Errorf("at the start: %d %s", status, body)
	}
	for path, want := range map[string]int{"/drain?timeout=soon": 400, "/drain?timeout=1h": 400, "/clusters": 404} {
		if status, body := meshtest.Ask(t, own.Health, path); status != want {
			t.Errorf("%s: %d, want %d: %s", path, status, want, body)
		}
	}
	pod := []string{"--server", one.Admin, "--server", two.Admin, "--pod", "default/a"}
	if code, out := drainCommand(t, append(pod, "--timeout", "0s")...); code != drains.ExitNotDrained || !strings.Contains(out, "user") {
		t.Errorf("at the start: %d\n%s", code, out)
	}

	drainedPods(t, manifests.Dir, a.Address, b.Address, true)
	status, body = meshtest.Ask(t, own.Health, "/drain?timeout=60s")
	var answer barrier.Answer
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK || !answer.Drained || len(answer.Servers) != 2 {
		t.Fatalf("terminating: %d %s", status, body)
	}
	if took := time.Since(begin); took < drain.Grace {
		t.Errorf("drained %v after the start of servers that cannot know their nodes for 30 s", took)
	}
	if code, out := drainCommand(t, append(pod, "--timeout", "5s")...); code != drains.ExitDrained {
		t.Errorf("terminating: %d\n%s", code, out)
	}
	for range 20 {
		if answer := answers(client); answer != "b" {
			t.Errorf("answered by %q, after the drain", answer)
		}
	}

	young := meshtest.StartControl(t, manifests.Source(), meshtest.Policy)
	if code, out := drainCommand(t, append(pod, "--server", young.Admin, "--timeout", "1s")...); code != drains.ExitNotDrained || !strings.Contains(out, string(drain.Starting)) {
		t.Errorf("with a server that has just started: %d\n%s", code, out)
	}
	stop()
	stopped = true
	if err := <-oneDone; err != nil {
		t.Error(err)
	}
	movesWithoutResend(t, two)
	if code, out := drainCommand(t, append(pod, "--timeout", "1s")...); code != drains.ExitUnknown {
		t.Errorf("with a server that is away: %d\n%s", code, out)
	}
}

// movesWithoutResend: the proxy comes to the control plane that is left, and is sent no resource.
func movesWithoutResend(t *testing.T, c *meshtest.Control) {
	t.Helper()
	find := func() *ack.Node {
		for _, n := range c.Audit(t).Nodes {
			if n.ID == "user" && n.State == ack.Fresh && n.Streams == 1 && len(n.Types) > 1 {
				return &n
			}
		}
		return nil
	}
	testwait.Within(t, 20*time.Second, "moved, and fresh", func() bool { return find() != nil })
	for _, e := range find().History {
		if e.Event == "sent" && e.Version != mesh.SumVersion(0) {
			t.Errorf("sent again after the move: %+v", e)
		}
	}
}
