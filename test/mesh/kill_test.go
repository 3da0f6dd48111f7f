package mesh

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
)

// A backend dies under load while its address stays listed: no request fails,
// the endpoint is ejected, the server finds that the proxy's state is current,
// and when the backend comes back it is used again.
func TestKilledBackendIsLeftAndComesBack(t *testing.T) {
	a, b := meshtest.StartBackend(t, "a"), meshtest.StartBackend(t, "b")
	manifests := meshtest.NewManifests(t)
	manifests.Service("echo", a.Address, b.Address)
	control := meshtest.StartControl(t, manifests.Source(), meshtest.Policy)
	proxy := meshtest.StartProxy(t, control.XDS, nil)
	load := meshtest.StartLoad(t, proxy.Outbound, authority, 200)
	testwait.Within(t, 5*time.Second, "answered by both", func() bool {
		return !load.Last("a").IsZero() && !load.Last("b").IsZero()
	})

	b.Kill()
	// At once in most runs; but where b was slow once, the balancer leaves it alone until
	// its estimate has decayed, and a backend that is not used is not found dead.
	testwait.Within(t, time.Minute, "ejected in /clusters", func() bool { return ejected(t, proxy, b.Address) })
	// The regular report, every 10 s, may be what tells it.
	testwait.Within(t, 20*time.Second, "reported, with verdict current", func() bool {
		return control.Log.Has("refresh", "verdict=current", "proxy-1") &&
			strings.Contains(meshtest.Get(t, control.Admin, "/metrics"), `freshmesh_refresh_total{verdict="current"} 1`)
	})

	b.Revive()
	back := time.Now()
	testwait.Within(t, 40*time.Second, "used again", func() bool { return load.Last("b").After(back) })
	testwait.Within(t, 5*time.Second, "no longer ejected", func() bool { return !ejected(t, proxy, b.Address) })

	load.Stop()
	sent, answers, failures := load.Result()
	t.Logf("%d requests, answered by %v", sent, answers)
	if len(failures) > 0 {
		t.Fatalf("%d of %d requests failed: %v", len(failures), sent, failures)
	}
}

// ejected tells what /clusters says of an endpoint.
func ejected(t *testing.T, proxy *meshtest.Proxy, address string) bool {
	t.Helper()
	text := meshtest.Get(t, proxy.Admin, "/clusters")
	for line := range strings.Lines(text) {
		if strings.Contains(line, address) && strings.Contains(line, "failed_outlier_check") {
			return true
		}
	}
	if !json.Valid([]byte(meshtest.Get(t, proxy.Admin, "/clusters?format=json"))) {
		t.Fatal("/clusters?format=json is no JSON")
	}
	return false
}
