package interop

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/admin/audit"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// An acknowledgement alone does not prove that a configuration is in effect:
// the audit calls the node fresh, and only Envoy itself shows that it is not.
func TestEnvoyAdminFindsWhatAnAckHides(t *testing.T) {
	t.Parallel()
	one, _ := startEcho(t, "one")
	two, _ := startEcho(t, "two")
	w := newWorld(t, nil)
	w.service("echo", one)
	var lies atomic.Bool
	var told atomic.Int32
	r := startADSRelay(t, w.address, func() hooks {
		return hooks{keep: func(m *discoveryv3.DeltaDiscoveryResponse) bool {
			lie := lies.Load() && mesh.Type(m.GetTypeUrl()) == mesh.TypeEndpoint && len(m.GetResources()) > 0
			if lie {
				told.Add(1)
			}
			return lie
		}}
	})
	c := envoyDelta(t, r.address)
	wantAnswer(t, c, "echo", "one", 10*time.Second)
	w.wantFresh(t, c, 5*time.Second)
	ask := func(args ...string) (int, string) {
		var out, errs strings.Builder
		code := audit.Main(t.Context(), append(args, "--server", w.control.Admin), &out, &errs)
		return code, out.String() + errs.String()
	}
	envoyAdmin := []string{"--envoy-admin", c.envoy.Admin}
	if code, text := ask(append(envoyAdmin, "-o", "json")...); code != audit.ExitFresh || !strings.Contains(text, `"active": true`) || !strings.Contains(text, `"inEffect": true`) {
		t.Fatalf("exit code %d: %s", code, text)
	}

	lies.Store(true)
	w.service("echo", two)
	testwait.Within(t, 5*time.Second, "told a lie", func() bool { return told.Load() > 0 })
	w.wantFresh(t, c, 5*time.Second)
	if code, text := ask(); code != audit.ExitFresh {
		t.Fatalf("by acknowledgements alone, exit code %d: %s", code, text)
	}
	code, text := ask(envoyAdmin...)
	for _, line := range []string{
		"eds " + interoptest.ClusterName("echo") + ": endpoint " + one + ": extra\n", "eds " + interoptest.ClusterName("echo") + ": endpoint " + two + ": missing\n",
	} {
		if code != audit.ExitNotFresh || !strings.Contains(text, line) {
			t.Fatalf("exit code %d: %s\nwant %s", code, text, line)
		}
	}
	if answer, err := c.call("echo"); err != nil || answer != "one" {
		t.Errorf("answered by %q, %v: the audit is wrong", answer, err)
	}

	lies.Store(false)
	meshtest.Post(t, w.control.Admin, "/resync?node="+c.name)
	if code, text := ask(append(envoyAdmin, "--wait", "5s")...); code != audit.ExitFresh {
		t.Errorf("after a resync, exit code %d: %s", code, text)
	}
	wantAnswer(t, c, "echo", "two", time.Second)

	w.down()
	if code, text := ask(envoyAdmin...); code != audit.ExitUnknown {
		t.Errorf("without a control plane, exit code %d: %s", code, text)
	}
}
