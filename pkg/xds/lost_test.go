package xds_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/freshmesh/freshmesh/internal/xdstest"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// A node with a connection for each stream, as a gRPC client has for each channel, loses
// one of them: half of what it holds is not told of changes any more, and the
// other half must not make it fresh.
func TestLostStreamOfANodeWithOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.put(xdstest.Resource(mesh.TypeCluster, "A", "v1"), xdstest.Resource(mesh.TypeEndpoint, "A", "v1"))
		conn, swallows := r.swallowing()
		node := &corev3.Node{Id: "n"}
		healthy := xdstest.Open(t, r.dial(nil), xdstest.Delta, node)
		healthy.Subscribe(mesh.TypeCluster, "A")
		healthy.ExpectAcked("cds +A@v1")
		time.Sleep(time.Millisecond) // bubble time
		lost := xdstest.Open(t, conn, xdstest.Delta, node)
		lost.Subscribe(mesh.TypeEndpoint, "A")
		lost.ExpectAcked("eds +A@v1")
		synctest.Wait()
		swallows.Store(true)
		r.put(xdstest.Resource(mesh.TypeEndpoint, "A", "v2"))
		for _, after := range []time.Duration{10 * time.Second, 20 * time.Second, 5 * time.Minute} {
			answering(after, healthy)
			n := r.nodes()
			if len(n) != 1 || n[0].Streams != 1 || n[0].State != ack.Disconnected || !strings.HasPrefix(n[0].Reason, "eds: stream lost ") {
				t.Fatalf("it holds A@v1 and is %+v", n)
			}
		}
		swallows.Store(false)
		back := xdstest.Open(t, conn, xdstest.Delta, node)
		back.Subscribe(mesh.TypeEndpoint, "A")
		back.ExpectAcked("eds +A@v2")
		synctest.Wait()
		if n := r.nodes(); n[0].State != ack.Fresh || len(n[0].Types) != 2 {
			t.Errorf("it is back, and %+v", n[0])
		}
	})
}

// A client that came back before its old stream was given up, and one that closes a stream
// of several, have lost nothing.
func TestStreamsThatAreNotLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		conn, swallows := r.swallowing()
		r.acknowledged(conn, "n")
		synctest.Wait()
		swallows.Store(true)
		time.Sleep(time.Second) // bubble time
		came := r.acknowledged(r.dial(nil), "n")
		other := r.acknowledged(r.dial(nil), "m")
		closes := r.acknowledged(r.dial(nil), "m")
		answering(30*time.Second, came, other, closes)
		closes.Close()
		answering(30*time.Second, came, other)
		for _, n := range r.nodes() {
			if n.State != ack.Fresh || n.Streams != 1 {
				t.Errorf("got %+v", n)
			}
		}
	})
}

// What is lost is forgotten when the node would be, too.
func TestLostStreamIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		conn, swallows := r.swallowing()
		healthy := r.acknowledged(r.dial(nil), "n")
		time.Sleep(time.Millisecond) // bubble time
		r.acknowledged(conn, "n")
		synctest.Wait()
		swallows.Store(true)
		answering(9*time.Minute, healthy)
		if n := r.nodes(); n[0].State != ack.Disconnected {
			t.Errorf("got %+v", n)
		}
		answering(2*time.Minute, healthy)
		if n := r.nodes(); n[0].State != ack.Fresh {
			t.Errorf("got %+v", n)
		}
	})
}
