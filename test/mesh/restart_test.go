package mesh

import (
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
)

// stopping runs something until the function it gives is called, which waits for its end.
func stopping(t *testing.T, who string, run func(context.Context) <-chan error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := run(ctx)
	stopped := false
	stop = func() {
		cancel()
		if stopped {
			return
		}
		stopped = true
		if err := <-done; err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// control runs a control plane over manifests, on an address.
func control(t *testing.T, m *meshtest.Manifests, address string) (c *meshtest.Control, stop func()) {
	t.Helper()
	stop = stopping(t, "control plane", func(ctx context.Context) (done <-chan error) {
		c, done = meshtest.RunControl(ctx, t, m.Source(), meshtest.Policy, address)
		return done
	})
	return c, stop
}

// The proxy is restarted while the control plane is away: it serves from its
// last good configuration, and follows the control plane once that is back.
func TestProxyRestartDuringOutageServesFromDisk(t *testing.T) {
	a, b := meshtest.StartBackend(t, "a"), meshtest.StartBackend(t, "b")
	manifests := meshtest.NewManifests(t)
	manifests.Service("echo", a.Address)
	first, stopControl := control(t, manifests, "127.0.0.1:0")
	state := t.TempDir()
	proxy := func() (p *meshtest.Proxy, stop func()) {
		stop = stopping(t, "data plane", func(ctx context.Context) (done <-chan error) {
			p, done = meshtest.RunProxy(ctx, t, first.XDS, func(c *dataplane.Config) { c.StateDir = state })
			return done
		})
		return p, stop
	}

	before, stopProxy := proxy()
	client := &meshtest.Client{Address: before.Outbound}
	testwait.Within(t, 5*time.Second, "answered", func() bool { return answers(client) == "a" })
	client.Close()
	stopControl()
	stopProxy()
	if files, err := os.ReadDir(state); err != nil || len(files) == 0 {
		t.Fatalf("the state directory has %v (%v), want a file", files, err)
	}

	after, _ := proxy()
	client = &meshtest.Client{Address: after.Outbound}
	t.Cleanup(client.Close)
	testwait.Within(t, 5*time.Second, "ready from what is on disk", func() bool {
		code, _ := meshtest.Ask(t, after.Admin, "/ready")
		return code == http.StatusOK
	})
	for range 20 {
		if status, body, err := client.Get(authority); err != nil || body != "a" {
			t.Fatalf("answered %d %q (%v), want a, from what is on disk", status, body, err)
		}
	}

	manifests.Service("echo", b.Address)
	second, _ := control(t, manifests, first.XDS)
	testwait.Within(t, 20*time.Second, "moved to b", func() bool { return answers(client) == "b" })
	testwait.Within(t, 5*time.Second, "fresh", func() bool {
		n := second.Audit(t).Nodes
		return len(n) == 1 && n[0].State == ack.Fresh
	})
}

// The control plane is restarted under load: no request fails, and it sends
// nothing that the proxy holds already.
func TestControlPlaneRestartUnderLoadResendsNothing(t *testing.T) {
	a, b := meshtest.StartBackend(t, "a"), meshtest.StartBackend(t, "b")
	manifests := meshtest.NewManifests(t)
	manifests.Service("echo", a.Address)
	first, stop := control(t, manifests, "127.0.0.1:0")
	relay := startRelay(t, first.XDS)
	proxy := meshtest.StartProxy(t, relay.address, nil)
	load := meshtest.StartLoad(t, proxy.Outbound, authority, 200)
	testwait.Within(t, 5*time.Second, "answered", func() bool { return !load.Last("a").IsZero() })
	testwait.Within(t, 5*time.Second, "fresh", func() bool { return holdsAll(t, first) })

	stop()
	relay.clusters.Store(0)
	relay.endpoints.Store(0)
	second, _ := control(t, manifests, first.XDS)
	testwait.Within(t, 20*time.Second, "fresh after the restart", func() bool { return holdsAll(t, second) })

	// What comes after the change comes after everything that the restart caused.
	manifests.Service("echo", b.Address)
	testwait.Within(t, 5*time.Second, "moved to b", func() bool { return !load.Last("b").IsZero() })
	load.Stop()
	if clusters, endpoints := relay.clusters.Load(), relay.endpoints.Load(); clusters != 0 || endpoints != 1 {
		t.Errorf("%d clusters and %d assignments were sent, want only the assignment that changed", clusters, endpoints)
	}
	if sent, _, failures := load.Result(); len(failures) > 0 {
		t.Errorf("%d of %d requests failed: %v", len(failures), sent, failures)
	}
}

// holdsAll tells whether the one proxy is fresh in clusters and in endpoints.
func holdsAll(t *testing.T, c *meshtest.Control) bool {
	t.Helper()
	nodes := c.Audit(t).Nodes
	if len(nodes) != 1 || nodes[0].State != ack.Fresh {
		return false
	}
	fresh := map[string]bool{}
	for _, s := range nodes[0].Types {
		fresh[s.Type] = s.State == ack.Fresh && s.Subscribed > 0 && s.Behind == 0
	}
	return fresh["cds"] && fresh["eds"]
}
