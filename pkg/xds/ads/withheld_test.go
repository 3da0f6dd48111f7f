package ads

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/snapshot"
)

// A client that withholds the ACK of CDS while it warms a cluster is asked in
// time to confirm another type, however long ago it did so last: its own ACKs
// of CDS before that must not push the question past the deadline.
func TestWithheldACKIsNoSilence(t *testing.T) {
	start := time.Unix(0, 0)
	store := snapshot.New(snapshot.Config{})
	publish := func(kind mesh.Type, body string, at time.Time) {
		store.Publish(mesh.Update{Put: []mesh.Resource{{Type: kind, Name: "a", Body: []byte(body)}}}, at)
	}
	publish(mesh.TypeCluster, "v1", start)
	publish(mesh.TypeEndpoint, "v1", start)
	s := New(Config{Delta: true, Policy: ack.Policy{ProbeInterval: 10 * time.Second, AckTimeout: 5 * time.Second}}, store.View(mesh.View{}), start)
	// answer takes what is sent at now and acknowledges it at once, but for CDS where withhold is set.
	answer := func(now time.Time, withhold bool) (nonce string) {
		for r := s.Next(now); r != nil; r = s.Next(now) {
			s.Sent()
			if withhold && r.Type == mesh.TypeCluster {
				nonce = r.Nonce
				continue
			}
			s.Request(Request{Type: r.Type, Nonce: r.Nonce}, now)
		}
		return nonce
	}
	s.Request(Request{Type: mesh.TypeCluster}, start)
	s.Request(Request{Type: mesh.TypeEndpoint, Subscribe: []string{"a"}}, start)
	answer(start, false)

	// CDS is acknowledged once more, and what comes then is withheld for 14 s.
	for _, quiet := range []time.Duration{6 * time.Second, 9 * time.Second} {
		acked := start.Add(quiet)
		publish(mesh.TypeCluster, "v2 "+quiet.String(), acked)
		s.Published(store.View(mesh.View{}))
		answer(acked, false)
		publish(mesh.TypeCluster, "v3 "+quiet.String(), acked)
		s.Published(store.View(mesh.View{}))
		nonce := answer(acked, true)
		if nonce == "" {
			t.Fatal("the change was not sent")
		}
		now := acked
		for now.Before(acked.Add(14 * time.Second)) {
			now = s.Deadline(now)
			if reason := s.Tick(now); reason != "" {
				t.Fatalf("closed %v after CDS was sent: %s", now.Sub(acked), reason)
			}
			answer(now, true)
		}
		if out := s.Request(Request{Type: mesh.TypeCluster, Nonce: nonce}, now); out.Answer != Acked {
			t.Fatalf("answer %v, want Acked", out.Answer)
		}
		start = now
	}
}
