package mesh

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
)

// A proxy that nobody has sent anything through yet is in the audit: connected, and
// subscribed to nothing.
func TestIdleProxyIsInTheAudit(t *testing.T) {
	manifests := meshtest.NewManifests(t)
	manifests.Service("echo", "127.0.0.1:1")
	control := meshtest.StartControl(t, manifests.Source(), meshtest.Policy)
	meshtest.StartProxy(t, control.XDS, nil)
	testwait.Within(t, 10*time.Second, "in the audit, with all that it was sent", func() bool {
		nodes := control.Audit(t).Nodes
		return len(nodes) == 1 && nodes[0].State == ack.Fresh
	})
	n := control.Audit(t).Nodes[0]
	subscribed := 0
	for _, s := range n.Types {
		subscribed += s.Subscribed
	}
	if n.ID != "proxy-1" || n.Streams != 1 || subscribed != 0 || !n.Active {
		t.Errorf("got %+v", n)
	}
}
