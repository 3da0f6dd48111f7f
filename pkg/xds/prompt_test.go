package xds_test

import (
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// TestWhoMayWithholdAnACK: an ACK of CDS that stays away while EDS is acknowledged is
// Envoy's way to warm a cluster. Our data plane and the gRPC clients acknowledge
// at once (tried, one change at a time): from them it means that the response was lost.
func TestWhoMayWithholdAnACK(t *testing.T) {
	for agent, reset := range map[string]bool{
		"envoy": false, "unknown": false, "": false,
		mesh.DataplaneUserAgent: true, "gRPC Go": true, "gRPC C-core linux Python": true, "gRPC Node Pure JS": true,
	} {
		t.Run(agent, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.put(xdstest.Resource(mesh.TypeCluster, "A", "v1"), xdstest.Resource(mesh.TypeEndpoint, "A", "v1"))
				s := xdstest.Open(t, r.conn, xdstest.SotW, &corev3.Node{Id: "n", UserAgentName: agent})
				s.Subscribe(mesh.TypeEndpoint, "A")
				s.ExpectAcked("eds +A@v1")
				s.Subscribe(mesh.TypeCluster, "A")
				s.ExpectText("cds +A@v1")
				began := time.Now()
				for s.Ended() == nil && time.Since(began) < 30*time.Second {
					for _, response := range s.Arrived() {
						if response.Type != mesh.TypeCluster {
							s.Ack(response)
						}
					}
					time.Sleep(100 * time.Millisecond) // bubble time
				}
				n := r.nodes()[0]
				switch took := time.Since(began); {
				case reset && (took > 5200*time.Millisecond || !slices.Contains(events(n), "reset ack_timeout")):
					t.Errorf("after %v: %+v", took, n)
				case !reset && (n.State != ack.Pending || n.Resets != 0):
					t.Errorf("after %v: %+v", took, n)
				}
			})
		})
	}
}
