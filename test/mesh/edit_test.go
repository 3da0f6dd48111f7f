package mesh

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
)

// An address is edited 30 times under 200 requests a second: each edit moves
// the traffic within a second, and no request fails.
func TestEditMovesTrafficWithoutFailure(t *testing.T) {
	backends := []*meshtest.Backend{meshtest.StartBackend(t, "a"), meshtest.StartBackend(t, "b")}
	manifests := meshtest.NewManifests(t)
	manifests.Service("echo", backends[0].Address)
	control := meshtest.StartControl(t, manifests.Source(), meshtest.Policy)
	proxy := meshtest.StartProxy(t, control.XDS, nil)
	load := meshtest.StartLoad(t, proxy.Outbound, authority, 200)
	testwait.Within(t, 5*time.Second, "answered at all", func() bool { return !load.Last("a").IsZero() })

	for i := range 30 {
		to, from := backends[(i+1)%2], backends[i%2]
		edited := time.Now()
		manifests.Service("echo", to.Address)
		testwait.Within(t, time.Second, "moved to "+to.Name, func() bool {
			now := time.Now()
			return load.Last(to.Name).After(edited) && now.Sub(load.Last(from.Name)) > 50*time.Millisecond
		})
	}

	load.Stop()
	sent, answers, failures := load.Result()
	t.Logf("%d requests, answered by %v", sent, answers)
	if len(failures) > 0 {
		t.Fatalf("%d of %d requests failed: %v", len(failures), sent, failures)
	}
	audit := control.Audit(t)
	if len(audit.Nodes) != 1 || audit.Nodes[0].State != ack.Fresh || !audit.Nodes[0].Active {
		t.Errorf("audit: %+v", audit.Nodes)
	}
}
