package xds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/xds/ads"
	"google.golang.org/grpc"
)

// resets compares freshmesh_stream_resets_total, reason → count; the others are 0.
func (r *rig) resets(want map[string]int) {
	r.t.Helper()
	text := "# HELP freshmesh_stream_resets_total Streams that the server ended, by reason.\n# TYPE freshmesh_stream_resets_total counter\n"
	for _, reason := range ads.CloseReasons() {
		text += fmt.Sprintf("freshmesh_stream_resets_total{reason=%q} %d\n", reason, want[string(reason)])
	}
	r.metric("freshmesh_stream_resets_total", text)
}

const (
	// crowd is how many bad clients there are of all kinds, on so many connections.
	crowd, crowdConnections = 500, 10
	// crowdBytes is more than a stream's flow-control window and what gRPC buffers beside it.
	crowdBytes = 200 << 10
)

// badClients opens the crowd: each third answers at first and then never again,
// or takes nothing off its stream, or reads all and never acknowledges. With each
// connection of them comes a healthy client.
func badClients(r *rig) (bad map[string]*xdstest.Stream, healthy []*xdstest.Stream) {
	bad = map[string]*xdstest.Stream{}
	for c := range crowdConnections {
		// Windows of a fixed size: gRPC would find that this one has room for everything.
		conn := r.dial(nil, grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
		h := xdstest.Open(r.t, conn, []xdstest.Protocol{xdstest.Delta, xdstest.SotW}[c%2], &corev3.Node{Id: fmt.Sprint("healthy-", c)})
		h.Subscribe(mesh.TypeEndpoint, "A")
		h.ExpectAcked("eds +A@v1")
		healthy = append(healthy, h)
		for i := c; i < crowd; i += crowdConnections {
			kind := []string{"silent", "blocked", "reading"}[i%3]
			id := fmt.Sprintf("%s-%03d", kind, i)
			s := xdstest.Open(r.t, conn, []xdstest.Protocol{xdstest.Delta, xdstest.SotW}[i/3%2], &corev3.Node{Id: id})
			switch kind {
			case "silent":
				s.Subscribe(mesh.TypeEndpoint, "A")
				s.ExpectAcked("eds +A@v1")
			case "blocked":
				// The reader may be in the middle of one receive, gRPC takes one response on
				// trust, and the third is stuck.
				s.Pause()
				s.Subscribe(mesh.TypeRoute, "big")
				s.Subscribe(mesh.TypeListener, "big")
				s.Subscribe(mesh.TypeCluster, "big")
				s.Subscribe(mesh.TypeEndpoint, "A")
			case "reading":
				s.Subscribe(mesh.TypeEndpoint, "A")
			}
			bad[id] = s
		}
	}
	synctest.Wait()
	return bad, healthy
}

// TestCrowdOfBadClientsDelaysNobody: 500 clients that are silent, blocked by flow
// control, or reading without an acknowledgement delay no change of a healthy
// client on the same connection; each is ended for its own reason, which is
// counted and stands in its history.
func TestCrowdOfBadClientsDelaysNobody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		big := strings.Repeat("x", crowdBytes)
		r.put(xdstest.Resource(mesh.TypeRoute, "big", big), xdstest.Resource(mesh.TypeListener, "big", big), xdstest.Resource(mesh.TypeCluster, "big", big),
			xdstest.Resource(mesh.TypeEndpoint, "A", "v1"))
		bad, healthy := badClients(r)
		// A change each second, from before the first reset until after the last.
		for i := range 25 {
			label := fmt.Sprint("v", i+2)
			changed := time.Now()
			r.put(xdstest.Resource(mesh.TypeEndpoint, "A", label))
			for _, s := range healthy {
				s.ExpectAcked("eds +A@" + label)
			}
			synctest.Wait()
			if d := time.Since(changed); d >= time.Second {
				t.Errorf("change %d was acknowledged after %v of bubble time", i, d)
			}
			time.Sleep(time.Second) // bubble time
		}
		want := map[string]int{}
		nodes := r.nodes()
		if len(nodes) != crowd+crowdConnections {
			t.Errorf("%d nodes in the audit", len(nodes))
		}
		for _, n := range nodes {
			kind, _, _ := strings.Cut(string(n.ID), "-")
			if kind == "healthy" {
				if n.State != ack.Fresh || n.Resets != 0 {
					t.Errorf("%s is %s after %d resets: %s", n.ID, n.State, n.Resets, n.Reason)
				}
				continue
			}
			reason := map[string]string{"silent": "ack_timeout", "blocked": "send_blocked", "reading": "ack_timeout"}[kind]
			want[reason]++
			if got := events(n); n.State != ack.Disconnected || n.Resets != 1 || !slices.Contains(got, "reset "+reason) {
				t.Errorf("%s is %s after %d resets, history %q, want reset %s", n.ID, n.State, n.Resets, got, reason)
			}
		}
		r.resets(want)
		r.closed("0") // the healthy ones answer on all of them
		for id, s := range bad {
			if strings.HasPrefix(id, "blocked") {
				s.Resume()
			}
			if _, message := s.ExpectEnd(); !strings.Contains(message, "stream closed: ") {
				t.Fatalf("%s is told %q", id, message)
			}
		}
	})
}
